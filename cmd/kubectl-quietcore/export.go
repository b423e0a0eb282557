package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/fleet"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/incidents/export"
	"github.com/quietcore/quietcore/internal/incidents/otlp"
	"github.com/quietcore/quietcore/internal/incidents/parquet"
	"github.com/quietcore/quietcore/internal/incidents/report"
)

// Formats that the daemon does not know.
const asOTLP, asParquet = "otlp", "parquet"

// exporting is what `export` was told.
type exporting struct {
	cluster      *fleet.Cluster
	filter       report.Filter
	format, from string
}

func newIncidentsExport(c *fleet.Cluster) *cobra.Command {
	e := exporting{cluster: c}
	formats := []string{export.CSV, export.Lines, asOTLP, asParquet}
	cmd := &cobra.Command{
		Use:   "export FILE|URL",
		Short: "incidents of all nodes for other programs: Parquet, OTLP, CSV, JSON",
		Long: `Writes the incidents of all nodes, node by node, the oldest first, to FILE; - is standard output.
What FILE ends in is the format: .parquet, with a row an incident; .otlp, OpenTelemetry's log
records as OTLP/JSON, a line each; .csv, with a line a suspect; .jsonl, all there is.

An http or https URL is the base address of an OTLP/HTTP server, such as a Collector's port 4318.
Headers come from OTEL_EXPORTER_OTLP_HEADERS, a file with who may sign the server's certificate from
OTEL_EXPORTER_OTLP_CERTIFICATE. A record's log.record.uid is the same each time.

A node's incidents are there as a whole or not at all. With --from no node is asked: they are what
quietcore incidents export --format jsonl wrote on one node, or on several, one after the other.`,
		Example: `  kubectl quietcore incidents export --since 7d incidents.parquet
  kubectl quietcore incidents export --since 1h http://localhost:4318
  quietcore incidents export --format jsonl - |
    kubectl quietcore incidents export --from - incidents.parquet`,
		Args: cli.OneArg("the FILE to write, -, or the URL of an OTLP/HTTP server"),
	}
	report.FilterFlags(cmd, &e.filter)
	cmd.Flags().StringVar(&e.format, "format", "", fmt.Sprintf("one of %v; without it what FILE ends in", formats))
	cmd.Flags().StringVar(&e.from, "from", "", "read lines from this file, - being standard input, and ask no node")
	cli.Completes(cmd, "format", formats...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := e.filter.Parse(time.Now()); err != nil {
			return err
		}
		to, isURL := args[0], strings.HasPrefix(args[0], "http://") || strings.HasPrefix(args[0], "https://")
		switch {
		case isURL && e.format != "" && e.format != asOTLP:
			return cli.Usage("--format is %s; what is sent to a URL is %s", e.format, asOTLP)
		case e.from != "" && e.filter.Filter != (incidents.Filter{}):
			return cli.Usage("--from takes all that there is: filter with quietcore incidents export")
		case !isURL && e.format == "":
			e.format = strings.TrimPrefix(filepath.Ext(to), ".")
		}
		if !isURL {
			if err := cli.OneOf("format", e.format, formats...); err != nil {
				return err
			}
		}
		if !cmd.Flags().Changed("timeout") {
			c.Patience = 3 * time.Minute
		}
		return e.run(cmd, to, isURL)
	}
	return cmd
}

func (e *exporting) run(cmd *cobra.Command, to string, isURL bool) error {
	n := 0
	var part cli.PartialError
	write := func(w export.Writer) error {
		give := func(i *incidents.Incident) error { n++; return w.Write(i) }
		err := e.read(cmd.Context(), cli.StreamsOf(cmd), give)
		if err != nil && !errors.As(err, &part) {
			return err
		}
		return w.Close()
	}
	toWriter := func(out io.Writer) error {
		w, err := writerOf(out, e.format)
		if err != nil {
			return err
		}
		return write(w)
	}
	var err error
	where := "in " + to
	switch {
	case isURL:
		where = "sent"
		var push *otlp.Push
		if push, err = otlp.NewPush(cmd.Context(), to, os.Getenv); err == nil {
			err = write(push)
		}
	case to == "-":
		where = "written"
		err = toWriter(cmd.OutOrStdout())
	default:
		err = report.ToFile(to, toWriter)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%d incidents are %s\n", n, where)
	if part.Err != nil {
		return part
	}
	return nil
}

// read hands on incidents, of the cluster's nodes or of a file.
func (e *exporting) read(ctx context.Context, s cli.Streams, give func(*incidents.Incident) error) error {
	switch e.from {
	case "":
		return e.cluster.Export(ctx, s, e.filter.Filter, give)
	case "-":
		return export.Read(s.In, give)
	}
	file, err := os.Open(e.from)
	if err != nil {
		return err
	}
	defer file.Close()
	return export.Read(file, give)
}

func writerOf(w io.Writer, format string) (export.Writer, error) {
	switch format {
	case asOTLP:
		return otlp.NewFile(w), nil
	case asParquet:
		return parquet.NewWriter(w), nil
	}
	return export.To(w, format)
}
