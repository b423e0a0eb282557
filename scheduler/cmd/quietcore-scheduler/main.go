// Command quietcore-scheduler is kube-scheduler with the plugin Quietcore: a pod that asks for
// CPUs goes only where the node will give it some.
//
//	quietcore-scheduler --config FILE
//	quietcore-scheduler simulate FILE -o json
//	quietcore-scheduler evictor [--every 10s --burst 2]
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/quietcore/quietcore/scheduler/evictor"
	"github.com/quietcore/quietcore/scheduler/plugin"
	"github.com/quietcore/quietcore/scheduler/simulate"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "simulate":
			os.Exit(simulate.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "evictor":
			os.Exit(evictor.Main(os.Args[2:], os.Stdout, os.Stderr))
		}
	}
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(plugin.Name, plugin.New))))
}
