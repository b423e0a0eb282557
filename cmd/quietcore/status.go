package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/internal/render"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/internal/topodoc"
	"github.com/quietcore/quietcore/topology"
)

// settleLimit bounds the wait for a daemon to have written everything.
const settleLimit = time.Minute

func newStatus() *cobra.Command {
	var socket string
	var settled bool
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "who sits where now",
		Long:    "Asks the running daemon over its local socket for every container, the pools and the machine.",
		Example: "  quietcore status\n  quietcore status -o json | jq .pools",
		Args:    cli.NoArgs,
	}
	socketFlag(cmd, &socket)
	cmd.Flags().BoolVar(&settled, "wait-settled", false, "wait until everything decided is written and read back")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client := control.Client{Socket: socket}
		ctx, cancel := context.WithTimeout(cmd.Context(), settleLimit)
		defer cancel()
		ask := client.Status
		if settled {
			ask = client.Settled
		}
		s, err := ask(ctx)
		if err != nil {
			return err
		}
		if *format == "json" {
			encode := json.NewEncoder(cmd.OutOrStdout())
			encode.SetEscapeHTML(false)
			return encode.Encode(s)
		}
		return writeStatus(cmd.OutOrStdout(), s)
	}
	return cmd
}

func socketFlag(cmd *cobra.Command, socket *string) {
	*socket = config.Default().Socket
	cmd.Flags().Var((*socketPath)(socket), "socket", "the daemon's control socket")
}

// socketPath is a flag's value that the kernel takes for the path of a socket.
type socketPath string

const maxSocketPath = 107

func (p *socketPath) Set(text string) error {
	if text == "" || len(text) > maxSocketPath {
		return fmt.Errorf("a Unix socket's path has 1 to %d bytes, this has %d", maxSocketPath, len(text))
	}
	*p = socketPath(text)
	return nil
}

func (p *socketPath) String() string { return string(*p) }
func (p *socketPath) Type() string   { return "string" }

func writeStatus(w io.Writer, s *control.Status) error {
	t, err := topologyOf(s.Topology)
	if err != nil {
		return err
	}
	v := script.View("quietcore", t, s.Containers, s.Pools)
	v.Notes = notes(s)
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
	return writeLending(w, s.Lending)
}

func notes(s *control.Status) []string {
	var list []string
	if !s.Connected || !s.Synchronised {
		list = append(list, "not connected to the runtime: what is shown is what was known last")
	}
	if s.Unseen != "" {
		list = append(list, metrics.FeatureCgroups+": "+s.Unseen)
	}
	if len(s.RestartRequired) > 0 {
		list = append(list, "the configuration file has changed; a restart is required for "+
			strings.Join(s.RestartRequired, ", "))
	}
	for _, p := range s.Unannounced {
		where := "may run on CPUs that others own"
		if p.Masked {
			where = "is kept off the CPUs that others own"
		}
		list = append(list, fmt.Sprintf("pod %s was never announced by the runtime and %s: cgroup %s",
			printable.Text(p.UID), where, printable.Text(p.CgroupPath)))
	}
	if why := s.CPI.Why; why != "" {
		list = append(list, metrics.FeatureCPI+": "+why)
	}
	if why := s.CPI.Specs; why != "" {
		list = append(list, metrics.FeatureSpecs+": "+why)
	}
	return list
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

func topologyOf(doc json.RawMessage) (*topology.Topology, error) {
	var in struct {
		CPUs []struct {
			topodoc.CPU
			Online bool `json:"online"`
		} `json:"cpus"`
	}
	if err := json.Unmarshal(doc, &in); err != nil {
		return nil, fmt.Errorf("the daemon's topology: %w", err)
	}
	var d topodoc.Doc
	var online cpuset.Set
	for _, c := range in.CPUs {
		d.CPUs = append(d.CPUs, c.CPU)
		if c.Online && c.ID >= 0 && c.ID < cpuset.MaxCPUs {
			online.Add(c.ID)
		}
	}
	t, _, err := d.Build(nil)
	if err != nil {
		return nil, fmt.Errorf("the daemon's topology: %w", err)
	}
	return t.WithOnline(online)
}
