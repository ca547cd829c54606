package main

import (
	_ "time/tzdata" // CronJobs name time zones, and the machine may have none

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // as the upstream mains do
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// upstream maps a program's name to its unmodified main. Each takes its arguments from os.Args, as it does
// upstream, with the program's own name first.
var upstream = map[string]func(args []string) int{
	"etcd": func(args []string) int {
		etcdmain.Main(args) // exits on its own when something is wrong
		return 0
	},
	"kube-apiserver":          component(apiserver.NewAPIServerCommand),
	"kube-controller-manager": component(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubectl":                 component(kubectl.NewDefaultKubectlCommand),
}

func component(command func() *cobra.Command) func([]string) int {
	return func([]string) int { return cli.Run(command()) }
}
