package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// checkout is the directory of a checkout of github.com/Azure/bicep, of which
// the tests read compiled templates that others wrote.
func checkout(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("BICEP_CHECKOUT")
	if dir == "" {
		t.Skip("set BICEP_CHECKOUT to a checkout of github.com/Azure/bicep to run its templates")
	}
	return dir
}

// compiled are the JSON files of a corpus, relative to the checkout.
func compiled(t *testing.T, root, under string, match *regexp.Regexp) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(filepath.Join(root, under), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && match.MatchString(filepath.ToSlash(path)) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(files)
	return files
}

var errLive = errors.New("needs a live resource")

// sample makes a value for a parameter that has no default.
func sample(t *Template, def *node, name string, depth int) any {
	if def == nil || depth > 8 {
		return map[string]any{}
	}
	full := t.resolveType(def)
	if full == nil || isTrue(def.get("nullable")) || isTrue(full.get("nullable")) {
		return nil
	}
	for _, d := range []*node{def, full} {
		if a := d.get("allowedValues"); a != nil && len(a.items) > 0 {
			v := Export(a.items[0].raw())
			if _, is := v.([]any); !is && strings.EqualFold(full.get("type").text, "array") {
				return []any{v}
			}
			return v
		}
	}
	least := func(or int64) int64 {
		for _, key := range []string{"minLength", "minValue"} {
			for _, d := range []*node{def, full} {
				if m := intOf(d.get(key)); m != nil && *m > or {
					or = *m
				}
			}
		}
		return or
	}
	if full.get("type") == nil {
		return "anything"
	}
	switch strings.ToLower(full.get("type").text) {
	case "string", "securestring":
		text := strings.ToLower(name)
		text = text[:min(len(text), 10)]
		for int64(len(text)) < least(0) {
			text += "x"
		}
		for _, d := range []*node{def, full} {
			if m := intOf(d.get("maxLength")); m != nil && int64(len(text)) > *m {
				text = text[:*m]
			}
		}
		return text
	case "int":
		v := least(1)
		for _, d := range []*node{def, full} {
			if m := intOf(d.get("maxValue")); m != nil && v > *m {
				v = *m
			}
		}
		return v
	case "bool":
		return true
	case "array":
		out := []any{}
		if pre := full.get("prefixItems"); pre != nil {
			for _, d := range pre.items {
				out = append(out, sample(t, d, name, depth+1))
			}
			return out
		}
		for int64(len(out)) < least(0) {
			if d := full.get("items"); d != nil && d.kind == kindObject {
				out = append(out, sample(t, d, name, depth+1))
			} else {
				out = append(out, fmt.Sprintf("item%d", len(out)))
			}
		}
		return out
	}
	if d := full.get("discriminator"); d != nil {
		first := d.get("mapping").members[0]
		m, _ := sample(t, first, name, depth+1).(map[string]any)
		m[d.get("propertyName").text] = first.key
		return m
	}
	m := map[string]any{}
	if ps := full.get("properties"); ps != nil {
		for _, d := range ps.members {
			if v := sample(t, d, d.key, depth+1); v != nil {
				m[d.key] = v
			}
		}
	}
	return m
}

// expansion is what a template asks for: every resource by its id or symbol
// with what is known of it, those of nested deployments under their own.
type expansion map[string]any

func expand(t *Template, o Options, at string, out expansion) error {
	p, err := t.Plan(o)
	if err != nil {
		return err
	}
	return expandPlan(p, at, out)
}

func expandPlan(p *Plan, at string, out expansion) error {
	for _, r := range p.Resources {
		if r.Existing {
			continue
		}
		body, unknown, err := p.KnownBody(r)
		if err != nil {
			return fmt.Errorf("%s%s: %w", at, r.Symbol, err)
		}
		key := at + strings.ToLower(r.ResourceID)
		if r.Extension != nil {
			id, known, err := p.ExtensionID(r, nil)
			if err != nil && !strings.Contains(err.Error(), "namespace") {
				return err
			}
			key = at + id.Key()
			if !known {
				key = at + r.Symbol
			}
		}
		if r.Deployment {
			nested, err := p.Nested(r, nil)
			if errors.Is(err, errRuntime) {
				continue
			}
			if err != nil {
				if strings.Contains(err.Error(), "linked templates cannot be fetched") {
					continue
				}
				return fmt.Errorf("%s%s: %w", at, r.Symbol, err)
			}
			if err := expandPlan(nested, key+"|", out); err != nil {
				return err
			}
			body = nil
		}
		if _, twice := out[key]; twice {
			return fmt.Errorf("%s stands twice", key)
		}
		sort.Strings(unknown)
		out[key] = map[string]any{"type": strings.ToLower(r.Type), "version": r.APIVersion, "body": body, "unknown": len(unknown) > 0}
	}
	if _, _, err := p.KnownOutputs(); err != nil {
		return fmt.Errorf("%soutputs: %w", at, err)
	}
	return nil
}

func corpusOptions(t *Template, file string) Options {
	o := Options{
		Parameters: map[string]any{}, Deployment: "main", Location: "westus", Namespace: "default",
		Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), NewGUID: func() string { return "1c2c2e3c-0d1f-4f0c-9a51-6a8d2c0a7a11" },
		Surroundings: map[string]map[string]any{
			"subscription": {"tenantId": "7d1f3b2e-0000-0000-0000-000000000001"},
			"tenant":       {"tenantId": "7d1f3b2e-0000-0000-0000-000000000001"},
			"deployer":     {"objectId": "o", "tenantId": "t", "userPrincipalName": "u@example.com"},
		},
		Ask: func(q Question) (any, error) {
			return map[string]any{"apiVersions": []any{"2020-01-01"}, "locations": []any{"westus"}}, nil
		},
		Secret: func(SecretReference) (string, error) { return "from the vault", nil },
	}
	switch t.Level() {
	case LevelGroup:
		o.At = "/subscriptions/0b1f3b2e-0000-0000-0000-000000000001/resourceGroups/rg"
	case LevelSubscription:
		o.At = "/subscriptions/0b1f3b2e-0000-0000-0000-000000000001"
	case LevelManagementGroup:
		o.At = managementGroups + "mg"
	default:
		o.At = "/"
	}
	for _, x := range t.imports {
		if strings.EqualFold(x.provider, "Kubernetes") && x.config == nil && strings.Contains(toJSON(t.root.raw()), "extensions('"+x.alias+"').config") {
			o.ExtensionConfigs = map[string]map[string]any{x.alias: {"kubeConfig": map[string]any{"value": "k"}, "namespace": map[string]any{"value": "n"}}}
		}
	}
	for name, v := range inputs[file] {
		o.Parameters[name] = v
	}
	for _, q := range t.parameters {
		if _, given := o.Parameters[q.name]; !given && q.def.get("defaultValue") == nil && !q.optional() {
			if v := sample(t, q.def, q.name, 0); v != nil {
				o.Parameters[q.name] = v
			}
		}
	}
	return o
}

// inputs are parameters of corpus files for which a made-up text or an empty
// list will not do: names of several segments, ids, lists that are indexed.
var inputs = map[string]map[string]any{
	"baselines/Loops_LF/main":                                                    {"accounts": corpusAccounts},
	"baselines/LoopsIndexed_LF/main":                                             {"accounts": corpusAccounts},
	"user_submitted/101/azure-spring-cloud/activedeployment":                     {"app1Name": "spring/app", "app2Name": "spring/app2", "app3Name": "spring/app3"},
	"baselines/Parameters_CRLF/main":                                             {"myAny": map[string]any{"property": "p"}},
	"baselines/TypeDeclarations_LF/main":                                         {"mightIncludeNull": []any{map[string]any{"key": "value"}}},
	"user_submitted/201/wvd-create-hostpool/main":                                {"workSpaceName": "space"},
	"user_submitted/301/sql-database-with-management/main":                       {"resourceGroup": map[string]any{"name": "g", "location": "westus", "sqlLogicalServers": []any{corpusServer}}},
	"user_submitted/301/sql-database-with-management/modules/audit-settings":     corpusSQL,
	"user_submitted/301/sql-database-with-management/modules/azure-defender":     corpusSQL,
	"user_submitted/301/sql-database-with-management/modules/short-term-backup":  corpusSQL,
	"user_submitted/301/sql-database-with-management/modules/sql-database":       corpusSQL,
	"user_submitted/301/sql-database-with-management/modules/sql-firewall-rule":  {"sqlFirewallRule": map[string]any{"name": "r", "startIpAddress": "0.0.0.0", "endIpAddress": "0.0.0.0"}},
	"user_submitted/301/sql-database-with-management/modules/sql-logical-server": {"sqlLogicalServer": corpusServer},
	"user_submitted/101/deployment-script-with-storage/main":                     {"subId": "0b1f3b2e-0000-0000-0000-000000000001"},
	"user_submitted/101/sqlmi-new-vnet/main":                                     {"subnetName": "net/sub"},
	"user_submitted/201/web-app-asev2-create/main":                               {"subnetName": "net/sub"},
	"user_submitted/301/deployment-script-dev-environment/containergroups":       {"storageId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a"},
	"user_submitted/201/wvd-create-hostpool/modules/unmanagedDisks-customvhdvm":  {"vmImageVhdUri": "https://account.blob.example.com/vhds/a.vhd"},
	"user_submitted/201/key-vault-secret-create/main":                            {"secretsObject": map[string]any{"secrets": []any{map[string]any{"secretName": "a", "secretValue": "b"}}}},
}

var corpusAccounts = []any{map[string]any{"name": "one", "location": "westus"}, map[string]any{"name": "two", "location": "eastus"}}

var (
	corpusAudit = map[string]any{"name": "logs", "auditLogs": true, "microsoftSupportOperationsAuditLogs": true, "subscriptionId": "s", "resourceGroupName": "g", "logs": []any{"a"}, "metrics": []any{"m"}}
	corpusScans = map[string]any{"enabled": true, "disabledRules": []any{}, "emailAddresses": []any{}, "emailAccountAdmins": true, "vulnerabilityAssessments": map[string]any{
		"recurringScans": true, "emails": []any{}, "emailSubscriptionAdmins": true, "storageAccount": map[string]any{"name": "a", "resourceGroupName": "g", "containerName": "c"}}}
	corpusServer = map[string]any{"name": "server", "userName": "admin", "systemManagedIdentity": true, "publicNetworkAccess": "Enabled", "minimalTlsVersion": "1.2", "auditActionsAndGroups": []any{},
		"diagnosticLogsAndMetrics": corpusAudit, "azureDefender": corpusScans, "firewallRules": []any{}, "databases": []any{}, "passwordFromKeyVault": map[string]any{"subscriptionId": "s", "resourceGroupName": "g", "name": "v", "secretName": "n"},
		"azureActiveDirectoryAdministrator": map[string]any{"name": "n", "objectId": "o", "tenantId": "t"}, "tags": map[string]any{}}
	corpusSQL = map[string]any{"sqlDatabase": map[string]any{"name": "db", "skuName": "GP", "tier": "g", "status": "Online", "tags": map[string]any{}, "collation": "c", "dataMaxSize": 1, "hybridBenefit": false, "readReplicas": 0,
		"minimumCores": 1, "autoPauseDelay": 0, "zoneRedundant": false, "shortTermBackupRetention": 7, "longTermBackup": map[string]any{"enabled": false}, "dataEncryption": "Enabled", "azureDefender": corpusScans, "diagnosticLogsAndMetrics": corpusAudit, "auditActionsAndGroups": []any{}}}
)

// differences are the files of the corpora that do not expand, each with a
// text of the error; docs/compatibility.md says why.
var differences = map[string]string{
	"baselines/Loops_LF/main":                                     "stands twice in the template",
	"baselines/LoopsIndexed_LF/main":                              "stands twice in the template",
	"baselines/NestedResources_LF/main":                           "stands twice in the template",
	"baselines/Resources_CRLF/main":                               "stands twice in the template",
	"baselines/Modules_CRLF/main":                                 "the limit is 64",
	"baselines/Outputs_CRLF/main":                                 "must be of type string, it is bool",
	"user_submitted/201/api-management-create-all-resources/main": "needs a name of 4 segments",
}

func expandFile(path, file string) (expansion, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	tpl, err := Parse(text)
	if err != nil {
		return nil, err
	}
	out := expansion{}
	return out, expand(tpl, corpusOptions(tpl, file), "", out)
}

// TestCorpusExpands holds the compiled files of other people to S-40: each
// expands without error, and the classic and the symbolic form of one file to
// the same resources.
func TestCorpusExpands(t *testing.T) {
	root := checkout(t)
	base := "src/Bicep.Core.Samples/Files"
	for name, files := range map[string][]string{
		"baselines":      compiled(t, root, base+"/baselines", regexp.MustCompile(`/main(\.symbolicnames)?\.json$`)),
		"user_submitted": compiled(t, root, base+"/user_submitted", regexp.MustCompile(`\.json$`)),
	} {
		expanded, pairs := 0, 0
		forms := map[string]expansion{}
		for _, f := range files {
			rel, _ := filepath.Rel(root, f)
			rel = strings.TrimPrefix(filepath.ToSlash(rel), base+"/")
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var doc map[string]json.RawMessage
			if json.Unmarshal([]byte(strings.TrimPrefix(string(text), "\ufeff")), &doc) != nil || doc["resources"] == nil {
				continue // data that a template loads
			}
			stem := strings.TrimSuffix(strings.TrimSuffix(rel, ".json"), ".symbolicnames")
			got, err := expandFile(f, stem)
			if why, differs := differences[stem]; differs {
				if err == nil || !strings.Contains(err.Error(), why) {
					t.Errorf("%s: got %v; the table of differences says %q", rel, err, why)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", rel, err)
				continue
			}
			expanded++
			if other, ok := forms[stem]; ok {
				pairs++
				if diff := cmp.Diff(other, got); diff != "" {
					t.Errorf("%s: the two forms differ (-classic +symbolic):\n%s", stem, diff)
				}
			}
			forms[stem] = got
		}
		t.Logf("%s: %d files expand, %d pairs agree", name, expanded, pairs)
		if expanded == 0 {
			t.Errorf("%s: no files: is BICEP_CHECKOUT a checkout of github.com/Azure/bicep?", name)
		}
	}
}
