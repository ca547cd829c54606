package compat

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/servertest"
)

// A step sends a recorded request and expects the recorded answer. Files are
// below the recordings' folder, without their endings.
type step struct {
	method, target string
	send           string // request file, "" for no body
	status         int    // 0: whatever succeeds
	want           string // answer file, "" for no body to compare
	code           string // the code of an error
}

const ucpVersion = "?api-version=2023-10-01-preview"

// The routes of the recordings. The words are ours; the bodies are read from
// the checkout.
const (
	radiusPlane = "/planes/radius/local" + ucpVersion
	awsPlane    = "/planes/aws/aws" + ucpVersion
	azurePlane  = "/planes/azure/azurecloud" + ucpVersion
	groups      = "/planes/radius/local/resourceGroups" + ucpVersion
	group       = "/planes/radius/local/resourcegroups/test-rg" + ucpVersion

	providers    = "/planes/radius/local/providers/System.Resources/resourceproviders"
	testProvider = providers + "/Applications.Test"
	testType     = testProvider + "/resourcetypes/testResources"
	testVersion  = testType + "/apiversions/2025-01-01"
	testLocation = testProvider + "/locations/east"
)

// ucpCases are the recorded conversations with planes, groups and registrations.
func ucpCases() map[string][]step {
	planes, rgs, rps := "planes/testdata/", "resourcegroups/testdata/", "resourceproviders/testdata/"
	plane := func(kind, url string) map[string][]step {
		put := step{"PUT", url, planes + kind + "_v20231001preview_requestbody", 200, planes + kind + "_v20231001preview_responsebody", ""}
		get := step{"GET", url, "", 200, planes + kind + "_v20231001preview_responsebody", ""}
		return map[string][]step{
			"PUT_Create":          {put},
			"PUT_Update":          {put, {"PUT", url, planes + kind + "_updated_v20231001preview_requestbody", 200, planes + kind + "_updated_v20231001preview_responsebody", ""}},
			"GET_Empty":           {{"GET", url, "", 404, "", "NotFound"}},
			"GET_Found":           {put, get},
			"LIST":                {put, {"GET", url[:lastSlash(url)] + ucpVersion, "", 200, planes + kind + "_v20231001preview_list_responsebody", ""}},
			"DELETE_DoesNotExist": {{"DELETE", url, "", 204, "", ""}},
			"DELETE_Found":        {put, {"DELETE", url, "", 200, "", ""}},
		}
	}
	cases := map[string][]step{}
	for kind, url := range map[string]string{"radiusplane": radiusPlane, "awsplane": awsPlane, "azureplane": azurePlane} {
		for name, steps := range plane(kind, url) {
			cases["planes/"+kind+"_"+name] = steps
		}
	}
	plan := func(name string, steps ...step) { cases[name] = steps }
	putPlane := step{"PUT", radiusPlane, planes + "radiusplane_v20231001preview_requestbody", 200, "", ""}
	plan("planes/all_LIST", putPlane, step{"GET", "/planes" + ucpVersion, "", 200, planes + "genericplane_v20231001preview_list_responsebody", ""})
	plan("planes/GET_BadAPIVersion", step{"GET", "/planes?api-version=unsupported-version", "", 400, "", "InvalidApiVersionParameter"})
	plan("planes/PUT_BadAPIVersion", step{"PUT", "/planes/radius/local?api-version=unsupported-version", planes + "radiusplane_v20231001preview_requestbody", 400, "", "InvalidApiVersionParameter"})

	putGroup := step{"PUT", group, rgs + "resourcegroup_v20231001preview_requestbody", 200, rgs + "resourcegroup_v20231001preview_responsebody", ""}
	plan("resourcegroups/PUT_Create", putGroup)
	plan("resourcegroups/PUT_Update", putGroup, step{"PUT", group, rgs + "resourcegroup_updated_v20231001preview_requestbody", 200, rgs + "resourcegroup_updated_v20231001preview_responsebody", ""})
	plan("resourcegroups/PUT_APIValidation", step{"PUT", group, rgs + "resourcegroup_invalid_v20231001preview_requestbody", 400, rgs + "resourcegroup_invalid_v20231001preview_responsebody", ""})
	plan("resourcegroups/GET_Empty", step{"GET", group, "", 404, "", "NotFound"})
	plan("resourcegroups/GET_Found", putGroup, step{"GET", group, "", 200, rgs + "resourcegroup_v20231001preview_responsebody", ""})
	plan("resourcegroups/LIST", putGroup, step{"GET", groups, "", 200, rgs + "resourcegroup_v20231001preview_list_responsebody", ""})

	// made is a registration: PUT, and once it is complete the recorded GET.
	made := func(url, file string) []step {
		return []step{{"PUT", url + ucpVersion, rps + file + "_requestbody", 0, "", ""}, {"GET", url + ucpVersion, "", 200, rps + file + "_responsebody", ""}}
	}
	gone := func(url string) []step {
		return []step{{"DELETE", url + ucpVersion, "", 0, "", ""}, {"GET", url + ucpVersion, "", 404, "", "NotFound"}}
	}
	list := func(url, file string) step {
		return step{"GET", url[:lastSlash(url)] + ucpVersion, "", 200, rps + file + "_v20231001preview_list_responsebody", ""}
	}
	empty := func(url, file string) step {
		return step{"GET", url[:lastSlash(url)] + ucpVersion, "", 200, rps + file + "_v20231001preview_emptylist_responsebody", ""}
	}
	join := func(parts ...[]step) (all []step) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	one := func(s ...step) []step { return s }
	const v = "_v20231001preview"
	provider, typ, version, location := made(testProvider, "resourceprovider"+v), made(testType, "resourcetype"+v), made(testVersion, "apiversion"+v), made(testLocation, "location"+v)
	missing := func(url string) step { return step{"GET", url + ucpVersion, "", 404, "", "NotFound"} }
	plan("resourceproviders/Provider_Lifecycle", join(one(empty(testProvider, "resourceprovider"), missing(testProvider)), provider,
		one(list(testProvider, "resourceprovider")), gone(testProvider))...)
	plan("resourceproviders/Provider_CascadingDelete", join(provider, typ, location, gone(testProvider), one(missing(testType), missing(testLocation)))...)
	plan("resourceproviders/Type_Lifecycle", join(provider, one(empty(testType, "resourcetype"), missing(testType)), typ,
		one(list(testType, "resourcetype")), gone(testType))...)
	plan("resourceproviders/Version_Lifecycle", join(provider, typ, one(empty(testVersion, "apiversion"), missing(testVersion)), version,
		one(list(testVersion, "apiversion")), gone(testVersion))...)
	plan("resourceproviders/Location_Lifecycle", join(provider, one(empty(testLocation, "location"), missing(testLocation)), location,
		one(list(testLocation, "location")), gone(testLocation))...)
	return cases
}

func lastSlash(url string) int {
	i := len(url) - len(ucpVersion)
	if i < 0 || url[i:] != ucpVersion {
		i = len(url)
	}
	for i--; url[i] != '/'; i-- {
	}
	return i
}

// bare is a control plane with nothing in it but its plane.
func bare(t *testing.T) *plane {
	p := start(t)
	p.must("DELETE", servertest.EnvironmentID("default")+ucpVersion, nil)
	p.must("DELETE", "/planes/radius/local/resourceGroups/default"+ucpVersion, nil)
	return p
}

// TestUCPRecordings_D3 plays the recorded conversations with planes, resource
// groups and registrations.
func TestUCPRecordings_D3(t *testing.T) {
	dir := filepath.Join(radius(t), "pkg", "ucp", "integrationtests")
	ledger := openLedger(t, "ucp")
	t.Run("D-3", func(t *testing.T) {
		for name, steps := range ucpCases() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := bare(t)
				ledger.judge(t, play(p, dir, "ucp/"+name, steps))
			})
		}
	})
	ledger.close(t)
}

// play runs the steps of a pair and returns where its answers differ. It stops
// at a status that differs: what follows would only say so again.
func play(p *plane, dir, pair string, steps []step) (found []difference) {
	before := map[string]map[string]bool{}
	for _, s := range steps {
		if s.method == "GET" && before[s.target] == nil && !strings.HasPrefix(s.target, "/planes/radius?") && !strings.HasPrefix(s.target, "/planes?") {
			before[s.target] = p.present(s.target)
		}
	}
	for _, s := range steps {
		at := s.method + " " + s.target[:len(s.target)-len(query(s.target))]
		var body any
		if s.send != "" {
			body = readJSON(p.t, dir, s.send+".json")
		}
		a := p.request(s.method, s.target, body)
		p.finish(a)
		if s.status != 0 && a.status != s.status || s.status == 0 && a.status >= 300 {
			return append(found, difference{pair, "status", "differs at " + at + ": recorded is " + itoa(s.status) + ", ours is " + itoa(a.status) + " " + a.errorCode()})
		}
		if s.code != "" && a.errorCode() != s.code {
			found = append(found, difference{pair, "$.error.code", "differs at " + at + ": recorded is " + s.code + ", ours is " + a.errorCode()})
		}
		if s.want != "" {
			want := readJSON(p.t, dir, s.want+".json")
			compare(pair, "$", want, without(withoutSystemData(a.body), before[s.target]), func(d difference) { found = append(found, d) })
		}
	}
	return found
}
