package paper

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/strict"
	"github.com/quietcore/quietcore/internal/topodoc"
)

// Allocate reads cases from standard input and answers each in one line, in order. It
// builds a machine only where it differs from that of the case before.
func Allocate(s cli.Streams) error {
	out := bufio.NewWriter(s.Out)
	err := allocateAll(strict.NewReader(s.In), out)
	if unwritten := out.Flush(); err == nil {
		err = unwritten
	}
	return err
}

// allocateCase is one question. What it leaves out is the default.
type allocateCase struct {
	ID                string              `json:"id"`
	Topology          topodoc.Doc         `json:"topology"`
	Available         *cpuset.Set         `json:"available,omitempty"`
	Request           int                 `json:"request"`
	BindPolicy        bindPolicy          `json:"bindPolicy"`
	Required          bool                `json:"required"`
	SMT               config.SMT          `json:"smt"`
	ExclusivePolicy   exclusivePolicy     `json:"exclusivePolicy"`
	ExclusiveRequired bool                `json:"exclusiveRequired"`
	NUMAStrategy      config.NUMAStrategy `json:"numaStrategy"`
	Alignment         config.Alignment    `json:"alignment"`
	BySocket          bool                `json:"bySocket"` // Restricted: within one socket is enough
	Held              []heldCase          `json:"held"`
}

type heldCase struct {
	CPUs            cpuset.Set      `json:"cpus"`
	ExclusivePolicy exclusivePolicy `json:"exclusivePolicy"`
}

// bindPolicy and exclusivePolicy know the annotations' word Default as well.
type (
	bindPolicy      struct{ config.BindPolicy }
	exclusivePolicy struct{ config.ExclusivePolicy }
)

func (p *bindPolicy) UnmarshalText(text []byte) error {
	if string(text) == "Default" {
		return nil
	}
	return p.BindPolicy.UnmarshalText(text)
}

func (p *exclusivePolicy) UnmarshalText(text []byte) error {
	if string(text) == "Default" {
		return nil
	}
	return p.ExclusivePolicy.UnmarshalText(text)
}

// allocateResult is the answer to one case.
type allocateResult struct {
	ID       string         `json:"id"`
	CPUs     string         `json:"cpus"`
	Withheld string         `json:"withheld"`
	Error    *allocateError `json:"error"`
}

type allocateError struct {
	Code    cpuallocator.Code `json:"code"`
	Message string            `json:"message"`
}

func allocateAll(cases *strict.Reader, out *bufio.Writer) error {
	decoder := strict.NewDecoder()
	encode := json.NewEncoder(out)
	encode.SetEscapeHTML(false)
	var machines allocators
	for n := 0; ; n++ {
		doc, line, err := cases.Next()
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return cli.Usage("standard input holds no case; see `quietcore allocate --help`")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return cli.UsageError{Err: err}
		}
		var c allocateCase
		if err := decoder.Unmarshal(doc, line, &c); err != nil {
			return cli.UsageError{Err: err}
		}
		a, err := machines.get(c.Topology)
		if err != nil {
			return cli.Usage("line %d: case %q: %w", line, c.ID, err)
		}
		result := c.answer(a)
		if err := encode.Encode(result); err != nil {
			return err
		}
		// Whoever asks one case at a time waits for its answer before the next.
		if cases.Drained() {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// allocators keeps the machine of the last case.
type allocators struct {
	key  []byte
	last machine
}

type machine struct {
	online   cpuset.Set
	isolated cpuset.Set
	*cpuallocator.Allocator
}

func (m *allocators) get(doc topodoc.Doc) (machine, error) {
	key, err := json.Marshal(doc)
	if err != nil {
		return machine{}, err
	}
	if bytes.Equal(key, m.key) {
		return m.last, nil
	}
	t, _, err := doc.Build(topodoc.Open)
	if err != nil {
		return machine{}, err
	}
	m.key, m.last = key, machine{online: t.Online(), isolated: t.Isolated(), Allocator: cpuallocator.New(t)}
	return m.last, nil
}

// answer asks the allocator.
func (c *allocateCase) answer(a machine) allocateResult {
	result := allocateResult{ID: c.ID}
	got, refusal := c.ask(a)
	if refusal != nil {
		result.Error = &allocateError{Code: refusal.Code, Message: refusal.Message}
		return result
	}
	result.CPUs, result.Withheld = got.CPUs.String(), got.Withheld.String()
	return result
}

func (c *allocateCase) ask(a machine) (cpuallocator.Result, *cpuallocator.Error) {
	free := a.online.Minus(a.isolated)
	if c.Available != nil {
		free = *c.Available
	}
	if extra := free.Minus(a.online); !extra.IsEmpty() {
		return cpuallocator.Result{}, invalid("available names CPUs %s; online are %s", extra, a.online)
	}
	var held []cpuallocator.Held
	for _, h := range c.Held {
		if both := free.And(h.CPUs); !both.IsEmpty() && c.Available != nil {
			return cpuallocator.Result{}, invalid("CPUs %s are both available and held", both)
		}
		free = free.Minus(h.CPUs)
		held = append(held, cpuallocator.Held{CPUs: h.CPUs,
			Exclusive: cpuallocator.ExclusivePolicy(h.ExclusivePolicy.ExclusivePolicy)})
	}
	return a.Allocate(free, held, cpuallocator.Request{
		CPUs: c.Request, Bind: cpuallocator.BindPolicy(c.BindPolicy.BindPolicy), BindRequired: c.Required,
		SMT: cpuallocator.SMT(c.SMT), Exclusive: cpuallocator.ExclusivePolicy(c.ExclusivePolicy.ExclusivePolicy),
		ExclusiveRequired: c.ExclusiveRequired,
		Strategy:          cpuallocator.NUMAStrategy(c.NUMAStrategy), Alignment: cpuallocator.Alignment(c.Alignment),
		BySocket: c.BySocket,
	})
}

func invalid(format string, args ...any) *cpuallocator.Error {
	return &cpuallocator.Error{Code: cpuallocator.InvalidRequest, Message: fmt.Sprintf(format, args...)}
}
