// Package show queries a daemon over its socket and prints the answer for people and programs:
// `quietcore status`, `explain` and `record`.
package show

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/internal/render"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/internal/topodoc"
	"github.com/quietcore/quietcore/policy"
)

// settleLimit bounds the wait for a daemon to have written everything.
const settleLimit = time.Minute

// Options select the daemon and the output format.
type Options struct {
	Client control.Client
	To     io.Writer
	Format string // text, json or yaml; each command supports some of them
	Filter control.Filter
}

// Status prints where each pod runs; with settled, after every decision is written and read back.
func Status(ctx context.Context, o Options, settled bool) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	ask := o.Client.Status
	if settled {
		ask = o.Client.Settled
	}
	s, err := ask(ctx)
	if err != nil {
		return err
	}
	whole := slices.Clone(s.Containers)
	s.Filter(&o.Filter)
	if o.Format == "json" {
		return cli.WriteJSON(o.To, s)
	}
	return writeStatus(o.To, s, whole)
}

// WriteStatus draws the map of a machine, and lists its containers.
func WriteStatus(w io.Writer, s *control.Status) error { return writeStatus(w, s, s.Containers) }

// Record prints the recorded events as a script.
func Record(ctx context.Context, o Options) error {
	text, err := o.Client.Record(ctx)
	if err != nil {
		return err
	}
	if o.Format == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err = o.To.Write(text)
	return err
}

// writeStatus draws the map of the whole machine, and lists what s still has.
func writeStatus(w io.Writer, s *control.Status, whole []script.State) error {
	t, err := topodoc.Parse(s.Topology)
	if err != nil {
		return fmt.Errorf("the daemon's topology: %w", err)
	}
	v := script.View("quietcore", t, whole, s.Pools)
	v.Notes = notes(s)
	if left := len(whole) - len(s.Containers); left > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%d of %d containers are listed, as chosen", len(s.Containers),
			len(whole)))
	}
	if err := render.Text(w, v, cli.Colored(w)); err != nil {
		return err
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CONTAINER\tCLASS\tPOOL\tCPUS\tMEMS\tQUOTA\tWHY")
	for _, c := range s.Containers {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable.Text(c.Namespace+"/"+c.Pod+"/"+c.Container),
			c.Class,
			c.Pool, c.CPUs, c.Mems, quotaText(c), printable.Text(c.Why))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if err := writeClaims(w, s.Claims); err != nil {
		return err
	}
	return writeLending(w, s.Lending)
}

// writeClaims lists the claims of our own DRA driver; nothing, if there are none.
func writeClaims(w io.Writer, claims []policy.ClaimView) error {
	if len(claims) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLAIM\tDEVICE\tCPUS\tPODS\tWHY")
	for _, c := range claims {
		for _, r := range c.Requests {
			cpus, why := r.CPUs.String(), fmt.Sprintf("asked for %d", r.Asked)
			if r.Lost != "" {
				cpus, why = "none", why+"; "+printable.Text(r.Lost)
			}
			if !r.Withheld.IsEmpty() {
				why += fmt.Sprintf("; CPUs %s are kept idle for it", r.Withheld)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", printable.Text(c.Namespace+"/"+c.Name),
				printable.Text(r.Device), cpus, len(c.Pods), why)
		}
	}
	return table.Flush()
}

func notes(s *control.Status) []string {
	var list []string
	if !s.Connected || !s.Synchronised {
		list = append(list, "not connected to the runtime: what is shown is what was known last")
	}
	if m := s.Mode; m != nil && (m.Mode != "enforce" || m.Source != "file" || m.Resuming) {
		list = append(list, modeText(m))
	}
	if p := s.Policy; p != nil {
		list = append(list, policyText(p))
	}
	if s.Unseen != "" {
		list = append(list, metrics.FeatureCgroups+": "+s.Unseen)
	}
	if len(s.RestartRequired) > 0 {
		list = append(list, "the configuration file has changed; a restart is required for "+
			strings.Join(s.RestartRequired, ", "))
	}
	for _, p := range s.Unannounced {
		where := "may run on CPUs that other pods own"
		if p.Masked {
			where = "is kept off CPUs that other pods own"
		}
		list = append(list, fmt.Sprintf("pod %s was never announced by the runtime and %s: cgroup %s",
			printable.Text(p.UID), where, printable.Text(p.CgroupPath)))
	}
	for _, r := range s.Rivals {
		list = append(list, fmt.Sprintf("%s (%d times, last %s)", printable.Text(r.String()), r.Times,
			r.Last.UTC().Format(time.RFC3339)))
	}
	for _, p := range s.Short {
		list = append(list, p.String())
	}
	for _, w := range s.Waiting {
		who := "pod " + printable.Text(w.Namespace) + "/" + printable.Text(w.Pod)
		if w.Container != "" {
			who = "container " + printable.Text(w.Container) + " of " + who
		}
		list = append(list, fmt.Sprintf("%s is waiting for %d CPUs since %s", who, w.CPUs,
			w.Since.UTC().Format(time.RFC3339)))
	}
	if s.Report != "" {
		list = append(list, "quietcore report: "+s.Report)
	}
	if why := s.CPI.Why; why != "" {
		list = append(list, metrics.FeatureCPI+": "+why)
	}
	if w := s.CPI.Watchlist; w != nil {
		list = append(list, metrics.FeatureCPI+": "+w.String())
	}
	if j := s.CPI.Jobs; j != nil {
		list = append(list, metrics.FeatureCPI+": "+j.String())
	}
	if why := s.CPI.Specs; why != "" {
		list = append(list, metrics.FeatureSpecs+": "+why)
	}
	return list
}

// policyText is what is in force, and what is to be, in a line.
func policyText(p *control.FollowedPolicy) string {
	text := "no QuietcorePolicy is in force"
	if p.Applied != "" {
		text = fmt.Sprintf("policy %s, revision %d, is in force", printable.Text(p.Applied), p.AppliedRevision)
	}
	if p.Policy != "" && (p.Policy != p.Applied || p.Revision != p.AppliedRevision) {
		text += fmt.Sprintf("; policy %s, revision %d, is to follow", printable.Text(p.Policy), p.Revision)
	}
	switch p.State {
	case "Applied", "File":
	case "Unknown":
		text += "; the API server has not said which is to be"
	default:
		text += " (" + p.State + ")"
	}
	if p.Why != "" {
		text += ": " + printable.Text(p.Why)
	}
	return text
}

func quotaText(c script.State) string {
	switch {
	case c.CapMilli != nil:
		return fmt.Sprintf("%dm (capped)", *c.CapMilli)
	case c.QuotaMilli < 0:
		return "none"
	}
	return fmt.Sprintf("%dm", c.QuotaMilli)
}
