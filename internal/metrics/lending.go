package metrics

import "github.com/prometheus/client_golang/prometheus"

// Lending is the state of lending idle CPUs, in CPUs.
type Lending struct {
	Capacity float64 // CPUs that there are
	// Used is nil if unknown.
	Used      *Used
	Supply    float64 // what production leaves
	Offered   float64 // what may be promised
	Published float64 // what the Node says
	Promised  float64 // what the batch pods that run request
	Demand    float64 // the same, idle ones by their use
	Budget    float64 // what batch pods may use together now
	Withheld  float64 // CPUs of the best-effort pool that suppression took
	Halted    bool    // nothing more is lent
}

// Used is how many CPUs are in use by production, batch pods and everything else.
type Used struct{ Production, Batch, Outside float64 }

func (l *Lending) each(do func(what string, cpus float64)) {
	do("capacity", l.Capacity)
	if u := l.Used; u != nil {
		do("production", u.Production)
		do("batch", u.Batch)
		do("outside", u.Outside)
	}
	do("supply", l.Supply)
	do("offered", l.Offered)
	do("published", l.Published)
	do("promised", l.Promised)
	do("demand", l.Demand)
	do("budget", l.Budget)
	do("withheld", l.Withheld)
}

// evictionResults condense those of internal/lend: failed is forbidden, absent, timeout,
// unanswered and error.
func evictionResults() []string {
	return []string{"evicted", "observed", "blocked", "limited", "ended", "failed"}
}

func repairCauses() []string { return []string{"zeroed", "removed", "recreated", "changed"} }

func (m *Metrics) lending() {
	m.cluster.evictions = m.counter("lending_evictions_total",
		"Evictions that were wanted to give lent CPUs back. blocked: by a disruption budget. limited: by our rate "+
			"or the API server's. ended: the pod had ended or was asked for before. failed: the others.", "result",
		evictionResults())
	m.cluster.repairs = m.counter("lending_repairs_total",
		"Times that another writer had changed the Node's lent CPUs.", "cause", repairCauses())
}

// Eviction counts an eviction by a result of internal/lend.
func (m *Metrics) Eviction(result string) {
	switch result {
	case "gone", "repeated":
		result = "ended"
	case "evicted", "observed", "blocked", "limited":
	default:
		result = "failed"
	}
	m.cluster.evictions.WithLabelValues(result).Inc()
}

// LendingRepaired counts a repair of the Node's status.
func (m *Metrics) LendingRepaired(cause string) {
	if among(cause, repairCauses()) == other {
		cause = "changed"
	}
	m.cluster.repairs.WithLabelValues(cause).Inc()
}

func haltedDesc() *prometheus.Desc {
	return desc("lending_halted", "Nothing more is lent than was promised: pods were evicted too often, or best "+
		"effort was at its floor too long (1), or not (0).")
}

func lendingDesc() *prometheus.Desc {
	return desc("lending_cpus", "CPUs in use, lent to best effort, or taken back from it.", "what")
}
