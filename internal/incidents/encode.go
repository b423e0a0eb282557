package incidents

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"
)

// A value in the file is a checksum and what it covers: the library that keeps
// the file has none of its own.

var errDamaged = errors.New("checksum mismatch: the file is damaged")

const sumLength = 4

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) } // the standard library makes it once

func seal(b []byte) []byte {
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[sumLength:], castagnoli()))
	return b
}

func unseal(b []byte) ([]byte, error) {
	if len(b) < sumLength || binary.LittleEndian.Uint32(b) != crc32.Checksum(b[sumLength:], castagnoli()) {
		return nil, errDamaged
	}
	return b[sumLength:], nil
}

// codec compresses incidents; it reuses its compressor, which is large.
type codec struct{ w *flate.Writer }

func (c *codec) encode(i *Incident) ([]byte, error) {
	text, err := json.Marshal(i)
	if err != nil {
		return nil, fmt.Errorf("incident %s: %w", i.ID, err)
	}
	var b bytes.Buffer
	b.Write(make([]byte, sumLength))
	if c.w == nil {
		if c.w, err = flate.NewWriter(nil, flate.BestSpeed); err != nil {
			return nil, err
		}
	}
	c.w.Reset(&b)
	if _, err := c.w.Write(text); err != nil {
		return nil, fmt.Errorf("incident %s: %w", i.ID, err)
	}
	if err := c.w.Close(); err != nil {
		return nil, fmt.Errorf("incident %s: %w", i.ID, err)
	}
	return seal(b.Bytes()), nil
}

// maxDecoded is far above the size of a bounded incident.
const maxDecoded = 4 << 20

func decode(b []byte) (*Incident, error) {
	b, err := unseal(b)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b)), maxDecoded))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	i := &Incident{}
	if err := json.Unmarshal(text, i); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	*i = Bounded(*i)
	return i, nil
}

// digest is what lists and rankings need of an incident, in a form that is searched
// without allocation: a hundred thousand take tens of milliseconds.
type digest struct {
	seq                  uint64 // its place in the order of arrival
	at                   int64  // Unix time in milliseconds
	cpi, threshold, mean float64
	before, after        float64
	verdict, result      []byte
	victim               rawSubject
	antagonists          []rawAntagonist
	// What an older version did not write is empty, or 0.
	resource  []byte
	disturbed float64 // seconds
	suspect   []byte  // the job that was suspected first
}

type rawSubject struct{ namespace, pod, container, job, class []byte }

type rawAntagonist struct {
	rawSubject
	score float64
	caps  []span
}

// span is when something was in force, in Unix milliseconds.
type span struct {
	from, end int64
	ended     bool
}

const digestFormat = 1

func (s Subject) raw() rawSubject {
	return rawSubject{[]byte(s.Namespace), []byte(s.Pod), []byte(s.Container), []byte(s.Job), []byte(s.Class)}
}

func (s rawSubject) subject() Subject {
	return Subject{Namespace: string(s.namespace), Pod: string(s.pod), Container: string(s.container),
		Job: string(s.job), Class: string(s.class)}
}

func digestOf(i *Incident, seq uint64) digest {
	d := digest{
		seq: seq, at: i.At.UnixMilli(), cpi: i.CPI, threshold: i.Threshold, mean: i.Spec.Mean,
		before: i.Outcome.Before, after: i.Outcome.After,
		verdict: []byte(i.Verdict), result: []byte(i.Outcome.Result), victim: i.Victim.raw(),
		resource: []byte(i.Evidence.Lacked()), disturbed: i.DisturbedSeconds,
	}
	if len(i.Suspects) > 0 {
		d.suspect = []byte(i.Suspects[0].JobName())
	}
	for _, s := range i.Antagonists {
		a := rawAntagonist{rawSubject: s.raw()}
		for _, suspect := range i.Suspects {
			if suspect.Same(s) {
				a.score = suspect.Score
			}
		}
		for _, act := range i.Actions {
			if act.Kind == Cap && act.Subject.Same(s) {
				a.caps = append(a.caps, span{act.From.UnixMilli(), act.End().UnixMilli(), !act.Ended.IsZero()})
			}
		}
		d.antagonists = append(d.antagonists, a)
	}
	return d
}

func (d *digest) encode() []byte {
	b := make([]byte, sumLength, 256)
	b = append(b, digestFormat)
	b = binary.LittleEndian.AppendUint64(b, d.seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(d.at))
	for _, x := range []float64{d.cpi, d.threshold, d.mean, d.before, d.after} {
		b = appendFloat(b, x)
	}
	b = appendText(b, d.verdict)
	b = appendText(b, d.result)
	b = appendSubject(b, d.victim)
	b = append(b, byte(len(d.antagonists)))
	for _, a := range d.antagonists {
		b = appendFloat(appendSubject(b, a.rawSubject), a.score)
		b = append(b, byte(len(a.caps)))
		for _, c := range a.caps {
			b = binary.LittleEndian.AppendUint64(b, uint64(c.from))
			b = binary.LittleEndian.AppendUint64(b, uint64(c.end))
			b = append(b, boolByte(c.ended))
		}
	}
	// What follows an older version does not look at.
	b = appendText(b, d.resource)
	b = appendText(appendFloat(b, d.disturbed), d.suspect)
	return seal(b)
}

func boolByte(x bool) byte {
	if x {
		return 1
	}
	return 0
}

func appendFloat(b []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
}

func appendText(b, text []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func appendSubject(b []byte, s rawSubject) []byte {
	for _, text := range [][]byte{s.namespace, s.pod, s.container, s.job, s.class} {
		b = appendText(b, text)
	}
	return b
}

// decode decodes into d and reuses its slices; strings refer to b.
func (d *digest) decode(b []byte) error {
	_, err := d.decodeIf(b, func(*digest) bool { return true })
	return err
}

// decodeIf decodes the antagonists only if wanted accepts the rest, which saves most of
// the work if few match.
func (d *digest) decodeIf(b []byte, wanted func(*digest) bool) (bool, error) {
	b, err := unseal(b)
	if err != nil {
		return false, err
	}
	r := cursor{b: b}
	if format := r.byte(); format != digestFormat {
		return false, fmt.Errorf("digest of format %d, this version knows %d", format, digestFormat)
	}
	d.seq, d.at = r.uint64(), int64(r.uint64())
	d.cpi, d.threshold, d.mean, d.before, d.after = r.float(), r.float(), r.float(), r.float(), r.float()
	d.verdict, d.result = r.text(), r.text()
	d.victim = r.subject()
	if r.short {
		return false, errDamaged
	}
	if !wanted(d) {
		return false, nil
	}
	n := int(r.byte())
	for len(d.antagonists) < n {
		d.antagonists = append(d.antagonists, rawAntagonist{})
	}
	d.antagonists = d.antagonists[:n]
	for i := range d.antagonists {
		a := &d.antagonists[i]
		a.rawSubject, a.score, a.caps = r.subject(), r.float(), a.caps[:0]
		for caps := int(r.byte()); caps > 0 && !r.short; caps-- {
			a.caps = append(a.caps, span{int64(r.uint64()), int64(r.uint64()), r.byte() == 1})
		}
	}
	d.resource, d.disturbed, d.suspect = nil, 0, nil
	if len(r.b) > 0 {
		d.resource = r.text()
	}
	if len(r.b) > 0 {
		d.disturbed, d.suspect = r.float(), r.text()
	}
	if r.short {
		return false, errDamaged
	}
	return true, nil
}

// cursor reads input that may end early.
type cursor struct {
	b     []byte
	short bool
}

func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.short, n = true, 0
		c.b = nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) byte() byte {
	if b := c.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (c *cursor) uint64() uint64 {
	if b := c.take(8); len(b) == 8 {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) float() float64 {
	if b := c.take(4); len(b) == 4 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return 0
}

func (c *cursor) text() []byte {
	n, size := binary.Uvarint(c.b)
	if size <= 0 {
		c.short = true
		return nil
	}
	c.b = c.b[size:]
	return c.take(n)
}

func (c *cursor) subject() rawSubject {
	return rawSubject{c.text(), c.text(), c.text(), c.text(), c.text()}
}

// capped is how long it has been capped up to now.
func (a *rawAntagonist) capped(now int64) time.Duration {
	var sum time.Duration
	for _, c := range a.caps {
		sum += c.lasted(now)
	}
	return sum
}

func (c span) lasted(now int64) time.Duration {
	return time.Duration(max(0, min(c.end, now)-c.from)) * time.Millisecond
}

// active says that a cap is in force.
func (d *digest) active(now int64) bool {
	for i := range d.antagonists {
		for _, c := range d.antagonists[i].caps {
			if !c.ended && c.end > now {
				return true
			}
		}
	}
	return false
}
