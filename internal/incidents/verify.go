package incidents

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// bbolt maps its file into memory and trusts its contents. A page that refers to itself,
// to the place of another or beyond the end of the file crashes the process, and recover
// does not help. So the file is verified once, with ordinary reads, before bbolt opens it.
// The checks cover what bbolt relies on: version 2 of its format, which is stable.

const (
	pageSize       = 4096
	pageHeader     = 16
	elementLength  = 16 // of branches and of leaves
	bucketHeader   = 16
	metaChecked    = 56 // bytes of a meta page that its checksum covers
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	noFreelist     = ^uint64(0)
	branchPage     = 0x01
	leafPage       = 0x02
	freelistPage   = 0x10
	bucketElement  = 1
	countElsewhere = 0xFFFF // the freelist's count is its first entry
)

type damageError struct {
	page uint64
	what string
}

func (e *damageError) Error() string { return fmt.Sprintf("page %d %s", e.page, e.what) }

// verify says why bbolt must not open a file of that size; nil: it may. A new file of
// size 0 is valid.
func verify(r io.ReaderAt, size int64) error {
	if size == 0 {
		return nil
	}
	w := walker{r: r, size: uint64(size)}
	if err := w.meta(); err != nil {
		return err
	}
	if w.high > w.size/pageSize {
		return fmt.Errorf("it ends after %d bytes, %d pages of %d bytes are in use", size, w.high, pageSize)
	}
	w.used = make([]uint64, w.high/64+1)
	if err := w.tree(); err != nil {
		return err
	}
	return w.free()
}

type walker struct {
	r                    io.ReaderAt
	size                 uint64
	root, freelist, high uint64
	used                 []uint64 // a bit a page
	buf                  []byte
	todo                 []subtree
}

// subtree is a page whose keys must lie in [low, high).
type subtree struct {
	page      uint64
	low, high []byte // nil: no bound
}

// meta takes the newer valid meta page, like bbolt.
func (w *walker) meta() error {
	found := false
	var newest uint64
	for page := range uint64(2) {
		var b [pageHeader + metaChecked + 8]byte
		if _, err := w.r.ReadAt(b[:], int64(page*pageSize)); errors.Is(err, io.EOF) {
			continue
		} else if err != nil {
			return err
		}
		m := b[pageHeader:]
		h := fnv.New64a()
		h.Write(m[:metaChecked])
		if ne32(m) != boltMagic || ne32(m[4:]) != boltVersion || ne64(m[metaChecked:]) != h.Sum64() {
			continue
		}
		if got := ne32(m[8:]); got != pageSize {
			return fmt.Errorf("its pages have %d bytes, must have %d", got, pageSize)
		}
		if txid := ne64(m[48:]); !found || txid > newest {
			found, newest = true, txid
			w.root, w.freelist, w.high = ne64(m[16:]), ne64(m[32:]), ne64(m[40:])
		}
	}
	if !found {
		return errors.New("neither of its two meta pages is valid: it is no database, or a truncated one")
	}
	return nil
}

func ne32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
func ne64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// page reads a page with its overflow pages, and marks them used: no other page may use
// them.
func (w *walker) page(id uint64) (flags, count uint16, body []byte, err error) {
	var head [pageHeader]byte
	if id < 2 || id >= w.high {
		return 0, 0, nil, &damageError{id, fmt.Sprintf("is referred to; pages 2 to %d are in use", w.high-1)}
	}
	if _, err := w.r.ReadAt(head[:], int64(id*pageSize)); err != nil {
		return 0, 0, nil, err
	}
	flags, count = binary.NativeEndian.Uint16(head[8:]), binary.NativeEndian.Uint16(head[10:])
	overflow := uint64(ne32(head[12:]))
	if got := ne64(head[:]); got != id {
		return 0, 0, nil, &damageError{id, fmt.Sprintf("says that it is page %d", got)}
	}
	if overflow >= w.high-id {
		return 0, 0, nil, &damageError{id, fmt.Sprintf("goes on for %d pages, past the last one, %d", overflow,
			w.high-1)}
	}
	for p := id; p <= id+overflow; p++ {
		if err := w.use(p); err != nil {
			return 0, 0, nil, err
		}
	}
	n := int((overflow + 1) * pageSize)
	if cap(w.buf) < n {
		w.buf = make([]byte, n)
	}
	w.buf = w.buf[:n]
	_, err = w.r.ReadAt(w.buf, int64(id*pageSize))
	return flags, count, w.buf[pageHeader:], err
}

func (w *walker) use(page uint64) error {
	bit := uint64(1) << (page % 64)
	if w.used[page/64]&bit != 0 {
		return &damageError{page, "is used twice"}
	}
	w.used[page/64] |= bit
	return nil
}

func (w *walker) tree() error {
	w.todo = append(w.todo, subtree{page: w.root})
	for len(w.todo) > 0 {
		at := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		flags, count, body, err := w.page(at.page)
		if err != nil {
			return err
		}
		switch flags {
		case branchPage:
			err = w.branch(at, int(count), body)
		case leafPage:
			err = w.leaf(at, int(count), body, true)
		default:
			err = &damageError{at.page, fmt.Sprintf("has flags %#x, must be a branch or a leaf", flags)}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) branch(at subtree, count int, body []byte) error {
	if count == 0 || count*elementLength > len(body) {
		return &damageError{at.page, fmt.Sprintf("is a branch of %d", count)}
	}
	last := []byte(nil)
	for i := range count {
		e := body[i*elementLength:]
		key, _, ok := within(e, ne32(e), ne32(e[4:]), 0)
		if !ok || !at.fits(key, last) {
			return &damageError{at.page, fmt.Sprintf("has a bad key at place %d", i)}
		}
		last = bytes.Clone(key)
		if i > 0 {
			w.todo[len(w.todo)-1].high = last
		}
		w.todo = append(w.todo, subtree{page: ne64(e[8:]), low: last, high: at.high})
	}
	return w.bounded(at)
}

// bounded keeps a damaged file from growing the list: a tree has no more pending
// subtrees than pages.
func (w *walker) bounded(at subtree) error {
	if uint64(len(w.todo)) > w.high {
		return &damageError{at.page, "belongs to a tree of more pages than there are"}
	}
	return nil
}

func (w *walker) leaf(at subtree, count int, body []byte, buckets bool) error {
	if count*elementLength > len(body) {
		return &damageError{at.page, fmt.Sprintf("is a leaf of %d", count)}
	}
	var last []byte
	for i := range count {
		e := body[i*elementLength:]
		key, value, ok := within(e, ne32(e[4:]), ne32(e[8:]), ne32(e[12:]))
		if !ok || !at.fits(key, last) {
			return &damageError{at.page, fmt.Sprintf("has a bad key at place %d", i)}
		}
		last = key
		switch flags := ne32(e); {
		case flags == 0:
		case flags == bucketElement && buckets:
			if err := w.bucket(at, value); err != nil {
				return err
			}
		default:
			return &damageError{at.page, fmt.Sprintf("has flags %#x at place %d", flags, i)}
		}
	}
	return nil
}

// bucket follows a bucket to its root page, or to the inline page of a small one.
func (w *walker) bucket(at subtree, value []byte) error {
	if len(value) < bucketHeader {
		return &damageError{at.page, "has a bucket that is too short"}
	}
	if root := ne64(value); root != 0 {
		w.todo = append(w.todo, subtree{page: root})
		return w.bounded(at)
	}
	inline := value[bucketHeader:]
	if len(inline) < pageHeader || binary.NativeEndian.Uint16(inline[8:]) != leafPage {
		return &damageError{at.page, "has a bucket within it that is no leaf"}
	}
	return w.leaf(subtree{page: at.page}, int(binary.NativeEndian.Uint16(inline[10:])), inline[pageHeader:], false)
}

// within returns the key and value at a distance from element e if they lie in what
// follows it.
func within(e []byte, pos, keyLength, valueLength uint32) (key, value []byte, ok bool) {
	from, to := uint64(pos), uint64(pos)+uint64(keyLength)
	end := to + uint64(valueLength)
	if keyLength == 0 || from < elementLength || end > uint64(len(e)) {
		return nil, nil, false
	}
	return e[from:to], e[to:end], true
}

// fits says that a key follows the last one and is within the bounds.
func (s subtree) fits(key, last []byte) bool {
	return (last == nil || bytes.Compare(last, key) < 0) &&
		(s.low == nil || bytes.Compare(s.low, key) <= 0) && (s.high == nil || bytes.Compare(key, s.high) < 0)
}

// free walks the list of free pages: each must lie in the file and be unused.
func (w *walker) free() error {
	if w.freelist == noFreelist {
		return nil
	}
	flags, short, body, err := w.page(w.freelist)
	if err != nil {
		return err
	}
	count := uint64(short)
	if count == countElsewhere {
		count, body = ne64(body), body[8:]
	}
	if flags != freelistPage || count > uint64(len(body)/8) {
		return &damageError{w.freelist, fmt.Sprintf("has flags %#x and %d entries, must be the list of free pages",
			flags, count)}
	}
	for i := range count {
		id := ne64(body[i*8:])
		if id < 2 || id >= w.high {
			return &damageError{w.freelist, fmt.Sprintf("lists page %d as free; pages 2 to %d are in use", id,
				w.high-1)}
		}
		if err := w.use(id); err != nil {
			return err
		}
	}
	return nil
}
