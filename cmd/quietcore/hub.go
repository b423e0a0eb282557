package main

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/hub"
)

func newHub() *cobra.Command {
	s := hub.Service{Version: version}
	cmd := &cobra.Command{
		Use:   "hub",
		Short: "serve a page of all nodes of a cluster",
		Long: `Asks the daemons of all nodes in rounds, as kubectl quietcore does, and serves a page: what
every node's CPUs are used for, owned, lent and kept from best effort; who hurt which job
most; pods that leave CPUs of their own idle. It changes nothing and keeps what it was
told in memory alone. Nodes that do not answer stay on the page, with since when. With
--prometheus what CPUs are used for comes from there, and each node is asked every fourth time.

The page is served on loopback alone: whoever reaches it reads everything on it. In a cluster
the chart runs it (hub.enabled), and kubectl port-forward reaches it.`,
		Example: "  quietcore hub\n  quietcore hub --context staging --every 1m\n" +
			"  quietcore hub --prometheus http://localhost:9090",
		Args: cli.NoArgs,
	}
	c := &s.Cluster
	f := cmd.Flags()
	f.StringVar(&s.Prometheus.URL, "prometheus", "",
		"a Prometheus that scrapes the daemons, such as http://prometheus.monitoring:9090; empty: the nodes are asked")
	f.StringVar(&s.Prometheus.TokenFile, "prometheus-token-file", "", "a bearer token for it")
	f.StringVar(&s.Prometheus.CAFile, "prometheus-ca-file", "",
		"certificates that may sign its own; empty: the system's")
	f.StringVar(&s.Matchers, "prometheus-matchers", "",
		`matchers of labels where it knows several clusters, such as cluster="a"`)
	f.StringVar(&s.Listen, "listen", "127.0.0.1:9470",
		"HOST:PORT on loopback, or the path of a Unix socket, of the page")
	f.StringVar(&s.Health, "health", "", "address of /livez and /readyz; empty: none")
	f.DurationVar(&s.Every, "every", 15*time.Second,
		"how often each node is asked; of incidents and use, every fourth time")
	f.DurationVar(&s.Window, "window", 7*24*time.Hour, "how far back incidents are kept, 1h to 744h")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "the kubeconfig; empty: kubectl's own, in a pod the service account")
	f.StringVar(&c.Context, "context", "", "the context of it, in place of the current one")
	f.StringVar(&c.Home, "daemon-namespace", "quietcore-system", "where the daemons run")
	f.StringVar(&c.Labels, "daemon-selector", "app.kubernetes.io/name=quietcore", "labels of their pods")
	f.StringVar(&c.TokenFile, "token-file", "",
		"a token that daemons take, for the audience quietcore.dev; empty: the API server makes one")
	f.IntVar(&c.Parallel, "parallel", 16, "how many nodes are asked at once")
	f.DurationVar(&c.Patience, "timeout", 10*time.Second, "how long one answer may take")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.Check(); err != nil {
			return err
		}
		return s.Run(cmd.Context(), slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
	}
	return cmd
}
