package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/daemon"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/plugin"
)

func newRestore() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "undo what the daemon did to what runs, before it is uninstalled",
		Long: `Gives every container back the CPUs and the CFS quota that the kernel, kubelet and the
runtime alone would have given it: masks of slices, pods and containers, lifted quotas,
caps, and what the runtime has stored. Nothing is restarted. The daemon must have ended;
the runtime must run. Pins of kubelet's static policy stay. What the Node says of lent
CPUs is taken away where the API server can be reached.

What no longer is needed is forgotten: the state file is removed once all is restored.
docs/enforcement.md says what a kernel may refuse to give back.`,
		Example: "  quietcore restore --config /etc/quietcore/config.yaml",
		Args:    cli.NoArgs,
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file of the daemon; without one the defaults hold")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := daemon.Restore(cmd.Context(), daemon.Options{File: file, Version: version,
			Log: cmd.ErrOrStderr()})
		if err != nil && len(found) == 0 {
			return inputOf(err) // it has not begun
		}
		if *format == "json" {
			return errors.Join(restoredJSON(cmd.OutOrStdout(), found), err)
		}
		return errors.Join(restoredText(cmd.OutOrStdout(), found), err)
	}
	return cmd
}

func restoredText(w io.Writer, found []plugin.Restored) error {
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

func restoredJSON(w io.Writer, found []plugin.Restored) error {
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
