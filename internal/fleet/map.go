package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/quietcore/quietcore/internal/cli"
)

// status is what is used of `quietcore status -o json`.
type status struct {
	Connected    bool `json:"connected"`
	Synchronised bool `json:"synchronised"`
	Pools        struct {
		Shared    string `json:"shared"`
		BE        string `json:"be"`
		Reserved  string `json:"reserved"`
		Exclusive string `json:"exclusive"`
	} `json:"pools"`
	Owners     []json.RawMessage `json:"owners"`
	Containers []struct {
		Pool     string `json:"pool"`
		CapMilli *int64 `json:"capMilli"`
	} `json:"containers"`
	Topology struct {
		CPUs []struct {
			Online bool `json:"online"`
		} `json:"cpus"`
	} `json:"topology"`
}

// nodeMap is one node in the table.
type nodeMap struct {
	Node   string          `json:"node"`
	Pod    string          `json:"pod"`
	Status json.RawMessage `json:"status,omitempty"` // the whole of it
	Error  string          `json:"error,omitempty"`
	parsed status
}

// Map writes the pools of every node.
func (c *Cluster) Map(ctx context.Context, w io.Writer, format string) error {
	daemons, err := c.daemons(ctx)
	if err != nil {
		return err
	}
	nodes, failed := maps(c.askAll(ctx, daemons, "status", "-o", "json"))
	if format == "json" {
		err = cli.WriteJSON(w, struct {
			Nodes []nodeMap `json:"nodes"`
		}{nodes})
	} else {
		err = writeMaps(w, nodes)
	}
	if err != nil {
		return err
	}
	return silent(failed, len(nodes))
}

// Draw writes each node's machine as its daemon draws it.
func (c *Cluster) Draw(ctx context.Context, w io.Writer) error {
	daemons, err := c.daemons(ctx)
	if err != nil {
		return err
	}
	return drawn(w, c.askAll(ctx, daemons, "status"))
}

func maps(answers []answer) (nodes []nodeMap, failed int) {
	for _, a := range answers {
		n := nodeMap{Node: a.Node, Pod: a.Pod}
		if a.err == nil {
			a.err = json.Unmarshal(a.text, &n.parsed)
		}
		if a.err != nil {
			n.Error = line(a.err.Error())
			failed++
		} else {
			n.Status = a.text
		}
		nodes = append(nodes, n)
	}
	return nodes, failed
}

func writeMaps(w io.Writer, nodes []nodeMap) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tCPUS\tEXCLUSIVE\tSHARED\tBE\tRESERVED\tOWNERS\tCONTAINERS\tCAPPED\tSTATE")
	for i := range nodes {
		n := &nodes[i]
		if n.Error != "" {
			fmt.Fprintf(table, "%s\t-\t-\t-\t-\t-\t-\t-\t-\t%s\n", line(n.Node), n.Error)
			continue
		}
		s := &n.parsed
		online, capped := 0, 0
		for _, cpu := range s.Topology.CPUs {
			if cpu.Online {
				online++
			}
		}
		for _, c := range s.Containers {
			if c.CapMilli != nil {
				capped++
			}
		}
		state := "ready"
		if !s.Connected || !s.Synchronised {
			state = "not registered with the runtime"
		}
		p := &s.Pools
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", line(n.Node), online, list(p.Exclusive),
			list(p.Shared), list(p.BE), list(p.Reserved),
			len(s.Owners), len(s.Containers), capped, state)
	}
	return table.Flush()
}

func list(cpus string) string {
	if cpus == "" {
		return "-"
	}
	return line(cpus)
}

func drawn(w io.Writer, answers []answer) error {
	failed := 0
	for i, a := range answers {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s (pod %s)\n", line(a.Node), line(a.Pod))
		text := Printable(string(a.text))
		if a.err != nil {
			failed++
			text = line(a.err.Error()) + "\n"
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return silent(failed, len(answers))
}
