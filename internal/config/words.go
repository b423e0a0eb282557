package config

import (
	"encoding"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/policy"
)

// Words that are numbers elsewhere: the value is the index in its list.
type (
	BindPolicy       cpuallocator.BindPolicy
	ExclusivePolicy  cpuallocator.ExclusivePolicy
	NUMAStrategy     cpuallocator.NUMAStrategy
	Alignment        cpuallocator.Alignment
	SMT              cpuallocator.SMT
	CPUManagerPolicy uint8
	TopologyPolicy   uint8
	TopologyScope    uint8
)

const (
	CPUManagerNone CPUManagerPolicy = iota
	CPUManagerStatic
)

func bindWords() []string { return []string{"FullPCPUs", "SpreadByPCPUs"} }
func exclusiveWords() []string {
	return []string{"None", "PCPULevel", "NUMANodeLevel"}
}
func strategyWords() []string {
	return []string{"MostAllocated", "LeastAllocated", "DistributeEvenly"}
}
func alignmentWords() []string {
	return []string{"None", "BestEffort", "Restricted", "SingleNUMANode"}
}
func smtWords() []string        { return []string{"none", "isolate", "align", "roundup"} }
func cpuManagerWords() []string { return []string{"none", "static"} }
func topologyWords() []string {
	return []string{"none", "best-effort", "restricted", "single-numa-node"}
}
func scopeWords() []string { return []string{"container", "pod"} }

func (v BindPolicy) String() string       { return word(v, bindWords()) }
func (v ExclusivePolicy) String() string  { return word(v, exclusiveWords()) }
func (v NUMAStrategy) String() string     { return word(v, strategyWords()) }
func (v Alignment) String() string        { return word(v, alignmentWords()) }
func (v SMT) String() string              { return word(v, smtWords()) }
func (v CPUManagerPolicy) String() string { return word(v, cpuManagerWords()) }
func (v TopologyPolicy) String() string   { return word(v, topologyWords()) }
func (v TopologyScope) String() string    { return word(v, scopeWords()) }

func (v BindPolicy) MarshalText() ([]byte, error)       { return []byte(v.String()), nil }
func (v ExclusivePolicy) MarshalText() ([]byte, error)  { return []byte(v.String()), nil }
func (v NUMAStrategy) MarshalText() ([]byte, error)     { return []byte(v.String()), nil }
func (v Alignment) MarshalText() ([]byte, error)        { return []byte(v.String()), nil }
func (v SMT) MarshalText() ([]byte, error)              { return []byte(v.String()), nil }
func (v CPUManagerPolicy) MarshalText() ([]byte, error) { return []byte(v.String()), nil }
func (v TopologyPolicy) MarshalText() ([]byte, error)   { return []byte(v.String()), nil }
func (v TopologyScope) MarshalText() ([]byte, error)    { return []byte(v.String()), nil }

func (v *BindPolicy) UnmarshalText(text []byte) error { return setIndex(v, text, bindWords()) }
func (v *ExclusivePolicy) UnmarshalText(text []byte) error {
	return setIndex(v, text, exclusiveWords())
}
func (v *NUMAStrategy) UnmarshalText(text []byte) error { return setIndex(v, text, strategyWords()) }
func (v *Alignment) UnmarshalText(text []byte) error    { return setIndex(v, text, alignmentWords()) }
func (v *SMT) UnmarshalText(text []byte) error          { return setIndex(v, text, smtWords()) }
func (v *CPUManagerPolicy) UnmarshalText(text []byte) error {
	return setIndex(v, text, cpuManagerWords())
}
func (v *TopologyPolicy) UnmarshalText(text []byte) error { return setIndex(v, text, topologyWords()) }
func (v *TopologyScope) UnmarshalText(text []byte) error  { return setIndex(v, text, scopeWords()) }

// Words that are words elsewhere too.
type (
	Mode           string
	AdmissionMode  string
	Heal           string
	Compact        string
	Unannounced    string
	Confine        string
	Memory         policy.Memory
	ResourceStatus string
	Profile        policy.Profile
	Driver         string
	API            string
	CPIMode        string
	Waits          string
	Skip           string
	Protect        string
	Detector       string
	Switch         string
	StandIn        string
	LogLevel       string
	LogFormat      string
)

const (
	Enforce          Mode           = "enforce"
	Observe          Mode           = "observe" // nothing at all is written
	Refuse           AdmissionMode  = "refuse"
	Degrade          AdmissionMode  = "degrade"
	HealAuto         Heal           = "auto"
	HealOff          Heal           = "off"
	CompactOff       Compact        = "off"
	ReportFound      Unannounced    = "report"
	MaskFound        Unannounced    = "mask"
	ConfineAuto      Confine        = "auto"
	ConfineOff       Confine        = "off"
	MemoryOff                       = Memory(policy.MemoryOff)
	DefaultProfile                  = Profile(policy.ProfileDefault)
	IgnoreStatus     ResourceStatus = "ignore"
	TrustStatus      ResourceStatus = "trust"
	DriverAuto       Driver         = "auto"
	DriverCgroups    Driver         = "cgroupfs"
	DriverSystemd    Driver         = "systemd"
	APIAuto          API            = "auto" // where there is a kubeconfig or a service account
	APIOff           API            = "off"
	CPIOff           CPIMode        = "off"
	CPIObserve       CPIMode        = "observe"
	CPIEnforce       CPIMode        = "enforce"
	ProtectDefault   Protect        = "" // as the profile says
	ProtectClass     Protect        = "class"
	ProtectRequest   Protect        = "request"
	WaitsOff         Waits          = "off"
	WaitsTotal       Waits          = "total"
	SkipIsolated     Skip           = "isolated" // by the kernel: isolcpus and nohz_full
	SkipOwners       Skip           = "owners"   // those, and CPUs that are somebody's own
	SkipNone         Skip           = "none"
	DetectorDefault  Detector       = "default"  // by experiment
	DetectorContrast Detector       = "contrast" // what default was before
	DetectorClassic  Detector       = "classic"  // the paper to the letter
	SwitchOff        Switch         = "off"
	SwitchObserve    Switch         = "observe"
	SwitchEnforce    Switch         = "enforce"
	NoStandIn        StandIn        = ""
	OnCPUTime        StandIn        = "on-cpu-nanoseconds"
	CPUClock         StandIn        = "cpu-clock"
	PageFaults       StandIn        = "page-faults"
	LogText          LogFormat      = "text"
	LogJSON          LogFormat      = "json"
)

func (v *Mode) UnmarshalText(text []byte) error { return setWord(v, text, Enforce, Observe) }
func (v *AdmissionMode) UnmarshalText(text []byte) error {
	return setWord(v, text, Refuse, Degrade)
}
func (v *Compact) UnmarshalText(text []byte) error {
	return setWord(v, text, CompactOff, Compact(policy.CompactIdle), Compact(policy.CompactAlways))
}
func (v *Heal) UnmarshalText(text []byte) error { return setWord(v, text, HealAuto, HealOff) }
func (v *Unannounced) UnmarshalText(text []byte) error {
	return setWord(v, text, ReportFound, MaskFound)
}
func (v *Confine) UnmarshalText(text []byte) error { return setWord(v, text, ConfineAuto, ConfineOff) }
func (v *Memory) UnmarshalText(text []byte) error {
	return setWord(v, text, MemoryOff, Memory(policy.MemoryPreferred), Memory(policy.MemoryStrict))
}
func (v *ResourceStatus) UnmarshalText(text []byte) error {
	return setWord(v, text, IgnoreStatus, TrustStatus)
}
func (v *Profile) UnmarshalText(text []byte) error {
	return setWord(v, text, DefaultProfile, Profile(policy.ProfileOpen), Profile(policy.ProfileStrict))
}
func (v *Driver) UnmarshalText(text []byte) error {
	return setWord(v, text, DriverAuto, DriverCgroups, DriverSystemd)
}
func (v *API) UnmarshalText(text []byte) error { return setWord(v, text, APIAuto, APIOff) }
func (v *CPIMode) UnmarshalText(text []byte) error {
	return setWord(v, text, CPIOff, CPIObserve, CPIEnforce)
}
func (v *Waits) UnmarshalText(text []byte) error { return setWord(v, text, WaitsOff, WaitsTotal) }
func (v *Skip) UnmarshalText(text []byte) error {
	return setWord(v, text, SkipIsolated, SkipOwners, SkipNone)
}
func (v *Switch) UnmarshalText(text []byte) error {
	return setWord(v, text, SwitchOff, SwitchObserve, SwitchEnforce)
}
func (v *Detector) UnmarshalText(text []byte) error {
	return setWord(v, text, DetectorDefault, DetectorContrast, DetectorClassic)
}
func (v *Protect) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*v = ProtectDefault
		return nil
	}
	return setWord(v, text, ProtectClass, ProtectRequest)
}
func (v *StandIn) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*v = NoStandIn
		return nil
	}
	return setWord(v, text, OnCPUTime, CPUClock, PageFaults)
}
func (v *LogLevel) UnmarshalText(text []byte) error {
	return setWord(v, text, "debug", "info", "warn", "error")
}
func (v *LogFormat) UnmarshalText(text []byte) error { return setWord(v, text, LogText, LogJSON) }

var _ = []encoding.TextUnmarshaler{(*Mode)(nil), (*AdmissionMode)(nil), (*Heal)(nil), (*Compact)(nil),
	(*Unannounced)(nil), (*Confine)(nil), (*Memory)(nil), (*ResourceStatus)(nil), (*Profile)(nil), (*Protect)(nil),
	(*Driver)(nil), (*API)(nil), (*CPIMode)(nil), (*MetricsAuth)(nil), (*Waits)(nil), (*Skip)(nil), (*Detector)(nil),
	(*Switch)(nil), (*StandIn)(nil), (*LogLevel)(nil), (*LogFormat)(nil)}

// Slog is the level in the terms of package slog.
func (v LogLevel) Slog() slog.Level {
	var l slog.Level
	if l.UnmarshalText([]byte(v)) != nil {
		return slog.LevelInfo
	}
	return l
}

func word[T ~uint8](v T, words []string) string {
	if int(v) >= len(words) {
		return strconv.Itoa(int(v))
	}
	return words[v]
}

func setIndex[T ~uint8](v *T, text []byte, words []string) error {
	i := slices.Index(words, string(text))
	if i < 0 {
		return unknownWord(string(text), words)
	}
	*v = T(i)
	return nil
}

func setWord[T ~string](v *T, text []byte, words ...T) error {
	if !slices.Contains(words, T(text)) {
		names := make([]string, len(words))
		for i, w := range words {
			names[i] = string(w)
		}
		return unknownWord(string(text), names)
	}
	*v = T(text)
	return nil
}

func unknownWord(text string, words []string) error {
	for _, w := range words {
		if strings.EqualFold(w, text) {
			return fmt.Errorf("is %s; write %s, words are case-sensitive", quote(text), w)
		}
	}
	return fmt.Errorf("is %s, must be %s", quote(text), alternatives(words))
}

func alternatives(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// quote shortens user input to a readable part of one line.
func quote(text string) string {
	const most = 60
	if len(text) > most {
		return strconv.QuoteToASCII(text[:most]) + "…"
	}
	return strconv.QuoteToASCII(text)
}
