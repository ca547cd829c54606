package compat

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/internal/clustertest"
)

// deployTemplate is what Bicep compiles for Radius: resources of the import
// Radius, objects of the cluster with the empty kubeConfig that stands for the
// server's own, and a module. Its Deployments are scheduled when a node has the
// label of the namespace's name.
const deployTemplate = `{
 "$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","languageVersion":"2.1-experimental","contentVersion":"1.0.0.0",
 "parameters":{"environment":{"type":"string"},"name":{"type":"string"},"node":{"type":"object","defaultValue":{}},"replicas":{"type":"int","defaultValue":1},
  "labels":{"type":"object","defaultValue":{}},"password":{"type":"securestring"}},
 "imports":{"radius":{"provider":"Radius","version":"latest"},
  "kubernetes":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"[parameters('name')]","kubeConfig":""}}},
 "resources":{
  "ns":{"import":"kubernetes","type":"core/Namespace@v1","properties":{"metadata":{"name":"[parameters('name')]"}}},
  "app":{"import":"radius","type":"Applications.Core/applications@2023-10-01-preview",
   "properties":{"name":"[parameters('name')]","properties":{"environment":"[parameters('environment')]"}}},
  "settings":{"import":"kubernetes","type":"core/Secret@v1",
   "properties":{"metadata":{"name":"settings","labels":"[parameters('labels')]"},"stringData":{"password":"[parameters('password')]"}}},
  "web":{"import":"kubernetes","type":"apps/Deployment@v1","properties":{"metadata":{"name":"web"},
   "spec":{"replicas":"[parameters('replicas')]","selector":{"matchLabels":{"a":"web"}},"template":{"metadata":{"labels":{"a":"web"}},
    "spec":{"nodeSelector":"[parameters('node')]","containers":[{"name":"web","image":"any"}]}}}}},
  "inner":{"type":"Microsoft.Resources/deployments","apiVersion":"2022-09-01","name":"[format('inner-{0}', parameters('name'))]","dependsOn":["app"],
   "properties":{"expressionEvaluationOptions":{"scope":"inner"},"mode":"Incremental",
    "parameters":{"app":{"value":"[reference('app').id]"},"name":{"value":"[parameters('name')]"},"node":{"value":"[parameters('node')]"}},
    "template":{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","languageVersion":"2.1-experimental","contentVersion":"1.0.0.0",
     "parameters":{"app":{"type":"string"},"name":{"type":"string"},"node":{"type":"object"}},
     "imports":{"radius":{"provider":"Radius","version":"latest"},
      "kubernetes":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"[parameters('name')]","kubeConfig":""}}},
     "resources":{
      "worker":{"import":"kubernetes","type":"apps/Deployment@v1","properties":{"metadata":{"name":"worker"},
       "spec":{"selector":{"matchLabels":{"a":"worker"}},"template":{"metadata":{"labels":{"a":"worker"}},
        "spec":{"nodeSelector":"[parameters('node')]","containers":[{"name":"worker","image":"any"}]}}}}},
      "db":{"import":"radius","type":"Applications.Core/extenders@2023-10-01-preview",
       "properties":{"name":"[format('db-{0}', parameters('name'))]","properties":{"application":"[parameters('app')]","resourceProvisioning":"manual","host":"h"}}}},
     "outputs":{"db":{"type":"string","value":"[reference('db').id]"}}}}}},
 "outputs":{"db":{"type":"string","value":"[reference('inner').outputs.db.value]"}}}`

// coreTemplate makes an environment of the newer kind, for which rad makes a
// recipe pack first.
const coreTemplate = `{
 "$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","languageVersion":"2.1-experimental","contentVersion":"1.0.0.0",
 "imports":{"radius":{"provider":"Radius","version":"latest"}},
 "resources":{
  "env":{"import":"radius","type":"Radius.Core/environments@2025-08-01-preview","properties":{"name":"newer","properties":{"providers":{"kubernetes":{"namespace":"newer"}}}}},
  "app":{"import":"radius","type":"Radius.Core/applications@2025-08-01-preview","dependsOn":["env"],"properties":{"name":"newer","properties":{"environment":"[reference('env').id]"}}}}}`

// TestRadiusCLIDeploys_S44_S49 runs the peer's `rad deploy`, unmodified, against
// the real program and a real cluster: what it sends, what it reads of answers,
// what it says of faults, and what its other commands then show.
func TestRadiusCLIDeploys_S44_S49(t *testing.T) {
	if os.Getenv("RADIUS_CLI") == "" {
		t.Skip("RADIUS_CLI is not set: it names a built rad program, which this test drives")
	}
	cluster := clustertest.Start(t)
	client, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	r := newRad(t, startProgram(t, "--kubeconfig", cluster.Kubeconfig).url)
	main, newer := r.file("main.json", deployTemplate), r.file("newer.json", coreTemplate)
	parameters := r.file("parameters.json", `{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#","contentVersion":"1.0.0.0",
		"parameters":{"name":{"value":"rad-a"},"password":{"value":"s3cret"}}}`)
	labels := r.file("labels.json", `{"team":"b"}`)
	secret := r.file("secret.json", `"s3cret"`)
	wrong := r.file("wrong.json", strings.Replace(deployTemplate, `"containers":[{"name":"worker","image":"any"}]`, `"containers":[]`, 1))
	broken := r.file("broken.json", strings.Replace(deployTemplate, `[reference('app').id]`, `[reference('none').id]`, 1))

	r.play("S-44 S-49", []radStep{
		{"group create default", "created", 0},
		{"group create other", "created", 0},
		{"env create default", "created", 0},
		{"deploy " + main, `requires a parameter "name"`, 1},
		{"deploy " + main + " -p name=rad-a -p password=@" + secret + " -p replicas=x", `parameter \"replicas\" must be of type int`, 1},
		{"deploy " + broken + " -p @" + parameters, "none", 1},
		// Its parts that can be made are; the fault is said once, with its resource.
		{"deploy " + wrong + " -p @" + parameters, `resource inner/worker (apps/Deployment)`, 1},
		{"deploy " + main + " -p @" + parameters + " -p labels=@" + labels, "Deployment Complete", 0},
		{"app graph rad-a -o json", `{"resources":[{"name":"db-rad-a","type":"Applications.Core/extenders","provisioningState":"Succeeded"}]}`, 0},
		{"app status rad-a -o json", `{"Name":"rad-a","ResourceCount":1}`, 0},
		{"resource list -a rad-a -o json", `[{"name":"db-rad-a"}]`, 0},
		{"deploy " + main + " -p @" + parameters + " -p name=rad-b -g other", "Deployment Complete", 0},
		{"app graph rad-b -g other -o json", `{"resources":[{"name":"db-rad-b"}]}`, 0},
		{"deploy " + main + " -p @" + parameters + " -e none", "does not exist", 1},
		{"deploy " + main + " -p @" + parameters + " -p name=rad-c -a rad-c -w cluster", "Deployment Complete", 0},
		{"deploy " + newer, "Deployment Complete", 0},
		{"recipe-pack list -o json", `[{"name":"default"}]`, 0},
		{"env list --preview -o json", `[{"name":"newer"}]`, 0},
		{"app delete rad-c -y", "deleted", 0},
		{"app show rad-c", "was not found", 1},
	})

	out, exit := r.run("deploy", main, "-p", "@"+parameters)
	if exit != 0 {
		t.Fatalf("S-45: rad deploy once more: exit %d:\n%s", exit, out)
	}
	_, listed, _ := strings.Cut(out, "Resources:")
	var got []string
	for line := range strings.Lines(listed) {
		if fields := strings.Fields(line); len(fields) > 0 {
			got = append(got, strings.Join(fields, " "))
		}
	}
	slices.Sort(got)
	if want := []string{"db-rad-a Applications.Core/extenders", "rad-a Applications.Core/applications", "rad-a core/Namespace", "settings core/Secret", "web apps/Deployment", "worker apps/Deployment"}; !slices.Equal(got, want) {
		t.Errorf("S-44: rad lists as made %q, want %q", got, want)
	}
	kept, err := client.CoreV1().Secrets("rad-a").Get(t.Context(), "settings", metav1.GetOptions{})
	if err != nil || string(kept.Data["password"]) != "s3cret" {
		t.Errorf("S-40: the Secret that rad deployed: %v, %v", kept, err)
	}

	t.Run("progress", func(t *testing.T) { radProgress(t, r, client, main) })
}

// radProgress watches, on a terminal, a deployment that ends only when the test
// lets it: rad shows what is made and what is being made, of the module too.
func radProgress(t *testing.T, r rad, client kubernetes.Interface, main string) {
	node := r.file("node.json", `{"compat":"rad-p"}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := r.command(ctx, "deploy", main, "-p", "name=rad-p", "-p", "password=s3cret", "-p", "node=@"+node)
	screen := onTerminal(t, cmd)
	for _, line := range []string{"rad-p           core/Namespace", "settings        core/Secret", "web             apps/Deployment", "worker          apps/Deployment", "db-rad-p        Applications.Core/extenders"} {
		if !screen.shows(line) {
			t.Fatalf("S-44: rad's progress does not show %q:\n%s", line, screen)
		}
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		if _, err := client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"compat":"rad-p"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if !screen.shows("Deployment Complete") {
		t.Errorf("S-44: rad does not see the end:\n%s", screen)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("S-44: rad deploy: %v:\n%s", err, screen)
	}
	if strings.Contains(fmt.Sprint(screen), "s3cret") {
		t.Error("S-41: rad's progress shows a secure parameter")
	}
}
