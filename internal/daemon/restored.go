package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/plugin"
)

// RestoredText writes what Restore found for people.
func RestoredText(w io.Writer, found []plugin.Restored) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	same, masked := 0, 0
	for i := range found {
		r := &found[i]
		if r.StillMasked {
			masked++
		}
		if r.Err == nil && !r.Changed() {
			same++
			continue
		}
		fmt.Fprintf(table, "%s\tCPUs %s -> %s\tquota %s -> %s\t%s\n", printable.Text(r.Name), r.Was, r.CPUs,
			quotaOf(r.QuotaWas),
			quotaOf(r.Quota), problem(r.Err))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	failed := 0
	for i := range found {
		if found[i].Err != nil {
			failed++
		}
	}
	fmt.Fprintf(w, "%d restored, %d were as they should be, %d not restored\n", len(found)-same-failed, same, failed)
	if masked > 0 {
		fmt.Fprintf(w,
			"%d cgroups keep a mask of all CPUs that are online now: CPUs that come later are theirs only after a "+
				"restart of the pod\n", masked)
	}
	return nil
}

func quotaOf(q cgroup.Quota) string {
	if q.Milli() < 0 {
		return "none"
	}
	return fmt.Sprintf("%dm", q.Milli())
}

func problem(err error) string {
	if err == nil {
		return ""
	}
	return "NOT RESTORED: " + printable.Text(err.Error())
}

// RestoredJSON writes what Restore found, a line each.
func RestoredJSON(w io.Writer, found []plugin.Restored) error {
	type line struct {
		Name          string `json:"name"`
		Cgroup        string `json:"cgroup"`
		CPUsWere      string `json:"cpusWere"`
		CPUs          string `json:"cpus"`
		QuotaMilliWas int64  `json:"quotaMilliWas"`
		QuotaMilli    int64  `json:"quotaMilli"`
		StillMasked   bool   `json:"stillMasked"`
		Error         string `json:"error,omitempty"`
	}
	encode := json.NewEncoder(w)
	encode.SetEscapeHTML(false)
	for _, r := range found {
		l := line{
			Name: r.Name, Cgroup: r.Path, CPUsWere: r.Was.String(), CPUs: r.CPUs.String(),
			QuotaMilliWas: r.QuotaWas.Milli(), QuotaMilli: r.Quota.Milli(), StillMasked: r.StillMasked,
		}
		if r.Err != nil {
			l.Error = r.Err.Error()
		}
		if err := encode.Encode(l); err != nil {
			return err
		}
	}
	return nil
}
