// Package config is the daemon's configuration file.
//
//	apiVersion: quietcore.dev/v1alpha1
//	kind: Configuration
//	reserved: {cpus: "0-1"}
//	allocation: {exclusivePolicy: PCPULevel}
//
// A Config is Default with what the file says written over it; it is valid as a
// whole or refused as a whole, with every mistake named at once. Words such as
// SpreadByPCPUs are decoded into the values that package cpuallocator works
// with, so that an unknown word cannot get past this package.
// docs/configuration.md lists every key; a test holds the two together.
package config

import (
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/reclaim"
)

// APIVersion and Kind head every file.
const (
	APIVersion = "quietcore.dev/v1alpha1"
	Kind       = "Configuration"
)

// Config is the whole file.
type Config struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Mode       Mode      `json:"mode"`
	Admission  Admission `json:"admission"`
	// Unannounced is what becomes of pods whose cgroups are found and that no event named.
	Unannounced Unannounced `json:"unannounced"`
	Memory      Memory      `json:"memory"`
	Reserved    Reserved    `json:"reserved"`
	Pools       Pools       `json:"pools"`
	Allocation  Allocation  `json:"allocation"`
	Quota       Quota       `json:"quota"`
	System      System      `json:"system"`
	Authority   Authority   `json:"authority"`
	Inject      Inject      `json:"inject"`
	Node        NodeConfig  `json:"node"`
	Kubernetes  Kubernetes  `json:"kubernetes"`
	CPI         CPI         `json:"cpi"`
	Reclaim     Reclaim     `json:"reclaim"`
	Suppress    Suppress    `json:"suppression"`
	DRA         DRA         `json:"dra"`
	NRI         NRI         `json:"nri"`
	Cgroup      Cgroup      `json:"cgroup"`
	Sysfs       Sysfs       `json:"sysfs"`
	State       State       `json:"state"`
	Confine     Confine     `json:"confine"` // to the folders that it writes to
	Socket      string      `json:"socket"`
	Listen      string      `json:"listen"`
	Metrics     Metrics     `json:"metrics"`
	Health      Health      `json:"health"`
	Page        Page        `json:"page"`
	Log         Log         `json:"log"`
}

// Admission is what becomes of pods that cannot have what they ask for.
type Admission struct {
	Mode      AdmissionMode `json:"mode"`
	Heal      Heal          `json:"heal"`
	HealAfter Duration      `json:"healAfter"`
}

// UnmarshalWord reads the short form, which is the mode alone.
func (a *Admission) UnmarshalWord(text []byte) error { return a.Mode.UnmarshalText(text) }

// Reserved CPUs are never given exclusively; strict ones leave the pools too.
type Reserved struct {
	CPUs   cpuset.Set `json:"cpus"`
	Strict bool       `json:"strict"`
}

// Pools configures the pools that many share.
type Pools struct {
	SharedFloor int `json:"sharedFloor"` // CPUs; 0 means one physical core
	BEFloor     int `json:"beFloor"`     // the same of the BE pool, whatever limits it
}

// Allocation is what holds where no label, kubelet option or annotation speaks.
type Allocation struct {
	BindPolicy        BindPolicy      `json:"bindPolicy"`
	BindRequired      bool            `json:"bindRequired"`
	ExclusivePolicy   ExclusivePolicy `json:"exclusivePolicy"`
	ExclusiveRequired bool            `json:"exclusiveRequired"`
	NUMAStrategy      NUMAStrategy    `json:"numaStrategy"`
	Alignment         Alignment       `json:"alignment"`
	SMT               SMT             `json:"smt"`
	SMTRequired       bool            `json:"smtRequired"`
	Compact           Compact         `json:"compact"`
}

// Quota says whose CFS quota is lifted in addition to that of pinned pods and of
// containers that are alone in them.
type Quota struct {
	LiftContainersOfMultiContainerPods bool `json:"liftContainersOfMultiContainerPods"`
}

// System configures the class SYSTEM.
type System struct {
	CPUs       cpuset.Set `json:"cpus"` // empty: the shared pool
	Exclusive  bool       `json:"exclusive"`
	Namespaces []string   `json:"namespaces"`
}

// Authority says who may ask for what.
type Authority struct {
	Profile        Profile        `json:"profile"`
	Exclusive      Claims         `json:"exclusive"`
	WholeCores     Allowed        `json:"wholeCores"`
	NUMAExclusive  Allowed        `json:"numaExclusive"`
	Unmanaged      Allowed        `json:"unmanaged"`
	WithoutRequest Allowed        `json:"withoutRequest"`
	ResourceStatus ResourceStatus `json:"resourceStatus"`
	CapExemption   Allowed        `json:"capExemption"`
	IsolatedCPUs   Allowed        `json:"isolatedCPUs"`
}

// Claims limits which pods may own CPUs.
type Claims struct {
	Namespaces []string       `json:"namespaces"` // empty: all
	MaxCPUs    map[string]int `json:"maxCPUs"`    // by namespace, "*" for each of the others
}

// Allowed lists the namespaces that have a power; empty: as the profile says.
type Allowed struct {
	Namespaces []string `json:"namespaces"`
}

func nobody() Allowed { return Allowed{Namespaces: []string{}} }

// NodeConfig is the node that we run on: the key `node` of the file and of a
// script. Its zero value is a node without labels whose kubelet pins nothing.
type NodeConfig struct {
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels"`
	Kubelet Kubelet           `json:"kubelet"`
}

// Kubelet is what kubelet on this node was configured to do.
type Kubelet struct {
	CPUManagerPolicy      CPUManagerPolicy  `json:"cpuManagerPolicy"`
	Options               map[string]string `json:"options"` // cpuManagerPolicyOptions
	ReservedCPUs          cpuset.Set        `json:"reservedCPUs"`
	TopologyManagerPolicy TopologyPolicy    `json:"topologyManagerPolicy"`
	TopologyManagerScope  TopologyScope     `json:"topologyManagerScope"`
	StateFile             string            `json:"stateFile"`    // cpu_manager_state; empty: not read
	ConfigFile            string            `json:"configFile"`   // KubeletConfiguration; empty: not read
	ConfigDir             string            `json:"configDir"`    // its drop-ins; empty: none
	PodResources          string            `json:"podResources"` // socket; empty: not asked
}

// Inject says what containers learn of where they run.
type Inject struct {
	CPUsEnv string `json:"cpusEnv"` // environment variable with an owner's CPUs; empty: none
}

// Kubernetes says what is read from and written to the API server.
type Kubernetes struct {
	API          API          `json:"api"`
	Kubeconfig   string       `json:"kubeconfig"` // empty: the pod's service account
	Pods         bool         `json:"pods"`       // read the pods of this node
	Labels       bool         `json:"labels"`     // read the labels of this Node
	Events       bool         `json:"events"`     // write Events
	Policy       bool         `json:"policy"`     // follow QuietcorePolicy objects
	Topology     NodeTopology `json:"nodeResourceTopology"`
	StartupTaint bool         `json:"startupTaint"` // take the taint of new Nodes away
	// BatchSlice is whether pods of class BE outside of kubelet's best-effort slice are one group with it.
	BatchSlice Switch `json:"batchSlice"`
}

// NodeTopology is about the node's NodeResourceTopology object.
type NodeTopology struct {
	Enabled   bool   `json:"enabled"`
	ManagedBy string `json:"managedBy"`
}

// CPI says how cycles per instruction are counted, and what follows from them.
type CPI struct {
	Mode            CPIMode  `json:"mode"`
	Interval        Duration `json:"interval"`
	Window          Duration `json:"window"`
	Waits           Waits    `json:"waits"`
	Skip            Skip     `json:"skip"` // CPUs that are left alone
	Budget          Budget   `json:"budget"`
	MaxContainers   int      `json:"maxContainers"`
	ContainerSeries int      `json:"containerSeries"`
	JobSeries       int      `json:"jobSeries"`
	StandIns        StandIns `json:"standIns"`

	Detector       Detector `json:"detector"`
	Protect        Protect  `json:"protect"`
	JobLabel       string   `json:"jobLabel"` // names the job of a pod where the API server does not; empty: none
	MinUsage       float64  `json:"minUsage"` // CPU-seconds per second
	OutlierWindow  Duration `json:"outlierWindow"`
	ScoreWindow    Duration `json:"scoreWindow"`
	History        Duration `json:"history"`
	MinScore       float64  `json:"minScore"`
	MinConfidence  float64  `json:"minConfidence"`
	MinTasks       int      `json:"minTasks"`
	MinTaskSamples int      `json:"minTaskSamples"`
	SpecEvery      Duration `json:"specEvery"`
	CapFor         Duration `json:"capFor"`
	CapBatch       float64  `json:"capBatch"`      // CPUs
	CapBestEffort  float64  `json:"capBestEffort"` // CPUs
	MoveFor        Duration `json:"moveFor"`
	EvictAfter     int      `json:"evictAfter"` // caps in a day; 0: never
	Probe          Probe    `json:"probe"`
	Resctrl        string   `json:"resctrl"` // where it is mounted; empty: memory bandwidth is not limited
	Specs          Specs    `json:"specs"`
}

// Probe bounds what tests of the detector by experiment take from the innocent.
type Probe struct {
	Budget float64  `json:"budget"` // minutes an hour for the victims of a namespace; 0: nobody is tested
	Window Duration `json:"window"` // of a test: an interval, or a half to a sixth of it
	// Witness says that a verdict needs a victim of a second namespace that says the same.
	Witness bool `json:"witness"`
}

// Budget bounds what counting takes, in percent of CPU time averaged over an interval.
type Budget struct {
	Node float64 `json:"node"` // of all CPUs that are counted
	CPU  float64 `json:"cpu"`  // of any one of them
	// Test is of all CPUs, while a test of the detector runs for which Node is too little.
	Test float64 `json:"test"`
}

// Specs says where it is read what is normal for jobs, in addition to what the node learns.
type Specs struct {
	Prometheus Prometheus `json:"prometheus"`
}

// Prometheus is a server that has the recording rules of the chart.
type Prometheus struct {
	URL       string   `json:"url"` // empty: none is asked
	Period    Duration `json:"period"`
	Timeout   Duration `json:"timeout"`
	MaxAge    Duration `json:"maxAge"`
	TokenFile string   `json:"tokenFile"`
	CAFile    string   `json:"caFile"`
}

// Reclaim says which idle CPUs are lent.
type Reclaim struct {
	Mode        Switch       `json:"mode"`
	Evict       bool         `json:"evict"`       // ask for pods back where promises exceed what exists
	Koordinator bool         `json:"koordinator"` // publish by Koordinator's name too
	From        reclaim.From `json:"from"`
	Reserve     float64      `json:"reserve"`
	// Risk is a percentage of time; see reclaim.Config.
	Risk    float64          `json:"risk"`
	Horizon reclaim.Duration `json:"horizon"`
	// The rest are of earlier versions: taken in this one, with a warning (see Former), and
	// printed only where they are set.
	Predictor string          `json:"predictor,omitzero"`
	Idle      reclaim.Idle    `json:"idle,omitzero"`
	Raise     reclaim.Raise   `json:"raise,omitzero"`
	Correct   reclaim.Correct `json:"correct,omitzero"`
}

// Suppress says how far best effort gives way to production's use.
type Suppress struct {
	Mode      Switch           `json:"mode"`
	Threshold float64          `json:"threshold"` // percent of the node
	Floor     float64          `json:"floor"`     // CPUs; 0: one core
	Hold      reclaim.Duration `json:"hold"`
	Grow      float64          `json:"grow"` // percent of the node
}

// StandIns take the place of events that the machine cannot count; empty: none.
type StandIns struct {
	Cycles       StandIn `json:"cycles"`
	Instructions StandIn `json:"instructions"`
	RefCycles    StandIn `json:"refCycles"`
	LLCMisses    StandIn `json:"llcMisses"`
}

// NRI says how the runtime is reached.
type NRI struct {
	Socket string `json:"socket"`
	Name   string `json:"name"`
	Index  string `json:"index"`
}

// Cgroup says where the tree is and what writes it.
type Cgroup struct {
	Root   string `json:"root"`
	Driver Driver `json:"driver"`
	Bus    string `json:"bus"` // socket of systemd; empty: the usual ones
}

type Sysfs struct {
	Root string `json:"root"`
}

type State struct {
	Dir string `json:"dir"`
}

// Health is where the probes are asked.
type Health struct {
	Listen string `json:"listen"` // HOST:PORT; empty: they are not served
}

// Page says where people look at the machine in a browser.
type Page struct {
	Listen string `json:"listen"` // HOST:PORT on loopback, or a Unix socket; empty: nowhere
}

type Log struct {
	Level  LogLevel  `json:"level"`
	Format LogFormat `json:"format"`
}

// SetDefaults makes it the configuration of a node on which nothing was configured.
func (c *Config) SetDefaults() { *c = Default() }

// Default is the configuration of a node on which nothing was configured.
func Default() Config {
	return Config{
		APIVersion:  APIVersion,
		Kind:        Kind,
		Mode:        Enforce,
		Admission:   Admission{Mode: Refuse, Heal: HealAuto},
		Unannounced: ReportFound,
		Memory:      MemoryOff,
		Allocation:  Allocation{Compact: CompactOff},
		System:      System{Namespaces: []string{"kube-system"}},
		Authority: Authority{Profile: DefaultProfile,
			Exclusive:  Claims{Namespaces: []string{}, MaxCPUs: map[string]int{}},
			WholeCores: nobody(), NUMAExclusive: nobody(), Unmanaged: nobody(), WithoutRequest: nobody(),
			ResourceStatus: IgnoreStatus, CapExemption: nobody(), IsolatedCPUs: nobody()},
		Node: NodeConfig{
			Labels: map[string]string{},
			Kubelet: Kubelet{Options: map[string]string{}, StateFile: "/var/lib/kubelet/cpu_manager_state",
				ConfigFile:   "/var/lib/kubelet/config.yaml",
				PodResources: "/var/lib/kubelet/pod-resources/kubelet.sock"},
		},
		Kubernetes: Kubernetes{API: APIAuto, Pods: true, Labels: true, Events: true, BatchSlice: SwitchOff,
			Topology: NodeTopology{Enabled: true, ManagedBy: "Koordinator"}},
		CPI: CPI{Mode: CPIObserve, Interval: Duration(time.Minute), Window: Duration(10 * time.Second),
			Waits: WaitsTotal, Skip: SkipIsolated, Budget: Budget{Node: 0.1, CPU: 1, Test: 0.5}, MaxContainers: 1024,
			Probe: Probe{Budget: experiment.DefaultConfig().Budget,
				Window: Duration(experiment.DefaultConfig().Window)},
			Specs: defaultSpecs()}.withDetector(detect.DefaultConfig()),
		Reclaim:  Reclaim{Mode: SwitchOff}.with(reclaim.Default()),
		Suppress: suppressOf(reclaim.DefaultSuppress()),
		DRA:      defaultDRA(),
		NRI:      NRI{Socket: "/var/run/nri/nri.sock", Name: "quietcore", Index: "90"},
		Cgroup:   Cgroup{Root: "/sys/fs/cgroup", Driver: DriverAuto},
		Sysfs:    Sysfs{Root: "/sys"},
		State:    State{Dir: "/var/lib/quietcore"},
		Confine:  ConfineAuto,
		Socket:   "/run/quietcore/quietcore.sock",
		Listen:   "127.0.0.1:9464",
		Metrics:  Metrics{Auth: AuthOn},
		Health:   Health{Listen: "127.0.0.1:9466"},
		Page:     Page{Listen: "127.0.0.1:9465"},
		Log:      Log{Level: "info", Format: LogText},
	}
}
