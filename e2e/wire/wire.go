// Package wire is the language between the test host and the agent in its guest.
//
// A frame is a big-endian 32-bit length and that many bytes of JSON. Requests
// carry an id that their answer repeats, so answers may come in any order: a
// slow CRI call does not keep the harness from reading a log. For example
//
//	{"id":7,"op":"exec","argv":["cat","/proc/cmdline"]}
//	{"id":7,"stdout":"console=ttyS0\n"}
//
// Invariant: an answer with a non-empty error means that the operation did not
// do its work; a program that ran and exited with 1 is not an error.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// MaxFrame bounds what a corrupted length can make the reader allocate.
const MaxFrame = 64 << 20

// PortName is the virtio-serial port that the guest finds the host at.
const PortName = "quietcore.agent"

// The operations of the agent.
const (
	OpHello   = "hello"   // who are you: answers CPUs and Kernel
	OpExec    = "exec"    // run a program to its end
	OpStart   = "start"   // start a supervised program
	OpSignal  = "signal"  // signal a supervised program and wait until it is gone
	OpProcess = "process" // is a supervised program running
	OpFiles   = "files"   // a list of file actions, stopped at the first error
	OpGRPC    = "grpc"    // one unary call over a unix socket
	OpHTTP    = "http"    // one HTTP request over a unix socket
	OpDial    = "dial"    // wait until a unix socket accepts
	OpUnits   = "units"   // a list of calls to systemd, stopped at the first error
)

// Request is one call; which fields count depends on Op.
type Request struct {
	ID   uint64 `json:"id"`
	Op   string `json:"op"`
	Name string `json:"name,omitempty"`

	Argv  []string `json:"argv,omitempty"`
	Env   []string `json:"env,omitempty"`
	Stdin []byte   `json:"stdin,omitempty"`

	Signal int          `json:"signal,omitempty"`
	Files  []FileAction `json:"files,omitempty"`
	Units  []UnitAction `json:"units,omitempty"`

	Socket string `json:"socket,omitempty"`
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	Body   []byte `json:"body,omitempty"`

	// TimeoutMillis bounds the operation in the guest; 0 is the agent's own limit.
	TimeoutMillis int64 `json:"timeoutMillis,omitempty"`
}

// File actions. "removeTree" removes directories bottom up and works on a
// cgroup tree, whose files cannot be unlinked.
const (
	FileRead       = "read"
	FileWrite      = "write"
	FileMkdir      = "mkdir"
	FileList       = "list"
	FileRemove     = "remove"
	FileRemoveTree = "removeTree"
	FileRmdirTree  = "rmdirTree"
)

// FileAction is one step of OpFiles. A missing file is an error unless Optional.
type FileAction struct {
	Do       string `json:"do"`
	Path     string `json:"path"`
	Data     []byte `json:"data,omitempty"`
	Mode     uint32 `json:"mode,omitempty"`
	Optional bool   `json:"optional,omitempty"`
}

// FileResult answers one FileAction.
type FileResult struct {
	Data    []byte   `json:"data,omitempty"`
	Names   []string `json:"names,omitempty"`
	Missing bool     `json:"missing,omitempty"`
}

// Unit actions. "start" and "stop" return when systemd has done it; one starts no
// unit that exists and stops none that does not.
const (
	UnitStart  = "start"  // StartTransientUnit
	UnitSet    = "set"    // SetUnitProperties, runtime
	UnitStop   = "stop"   // StopUnit, then ResetFailedUnit
	UnitList   = "list"   // ListUnitsByPatterns
	UnitReload = "reload" // daemon-reload
)

// UnitAction is one step of OpUnits. Name is a pattern for "list".
type UnitAction struct {
	Do         string     `json:"do"`
	Name       string     `json:"name,omitempty"`
	Properties []Property `json:"properties,omitempty"`
}

// Property is one of a unit, as D-Bus types it: the value that is set counts, and
// Text where none is.
type Property struct {
	Name    string   `json:"name"`
	Bool    *bool    `json:"bool,omitempty"`
	Uint    *uint64  `json:"uint,omitempty"`
	Text    string   `json:"text,omitempty"`
	Strings []string `json:"strings,omitempty"`
	Bytes   []byte   `json:"bytes,omitempty"`
}

// UnitResult answers one UnitAction: the names that "list" found.
type UnitResult struct {
	Names []string `json:"names,omitempty"`
}

// Response answers the Request with the same ID.
type Response struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"`
	// Code is the gRPC status of OpGRPC, the HTTP status of OpHTTP and the exit
	// code of OpExec and OpProcess.
	Code int `json:"code,omitempty"`

	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`

	Files   []FileResult `json:"files,omitempty"`
	Units   []UnitResult `json:"units,omitempty"`
	Body    []byte       `json:"body,omitempty"`
	Running bool         `json:"running,omitempty"`
	PID     int          `json:"pid,omitempty"`

	CPUs   int    `json:"cpus,omitempty"`
	Kernel string `json:"kernel,omitempty"`
}

// Write sends one frame in a single write, so that concurrent writers need only
// a lock around the call.
func Write(w io.Writer, message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("wire: encode %T: %w", message, err)
	}
	if len(body) > MaxFrame {
		return fmt.Errorf("wire: frame of %d bytes is over the limit of %d", len(body), MaxFrame)
	}
	frame := make([]byte, 4+len(body))
	binary.BigEndian.PutUint32(frame, uint32(len(body)))
	copy(frame[4:], body)
	_, err = w.Write(frame)
	return err
}

// Read receives one frame into message. io.EOF is returned bare between frames.
func Read(r io.Reader, message any) error {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(header[:])
	if size > MaxFrame {
		return fmt.Errorf("wire: frame of %d bytes is over the limit of %d", size, MaxFrame)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("wire: frame cut short after its length of %d: %w", size, err)
	}
	if err := json.Unmarshal(body, message); err != nil {
		return fmt.Errorf("wire: decode %T: %w", message, err)
	}
	return nil
}
