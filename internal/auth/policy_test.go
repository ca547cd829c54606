package auth_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/auth"
	kept "github.com/radial-project/radial/internal/store"
)

// people starts a control plane whose callers an OIDC issuer names, u-root being
// root; it needs no cluster.
func people(t *testing.T) (*front, func(name string) *caller) {
	t.Helper()
	i := newIssuer(t, "")
	f := start(t, nil, auth.AuthenticatorOptions{Issuers: []*auth.Issuer{newAuthIssuer(t, auth.IssuerOptions{URL: i.url, Audience: "radial-cli", CA: i.ca(), Prefix: "u-"})}},
		auth.Principal{Kind: auth.KindUser, Name: "u-root"})
	return f, func(name string) *caller { return f.bearer(i.token(t, i.key, map[string]any{"sub": name})) }
}

const (
	store  = "/providers/Applications.Core/secretStores/"
	env    = "/providers/Applications.Core/environments/"
	secret = `{"properties":{"type":"generic","data":{"k":{"value":"hunter2-canary"}}}}`
	envOf  = `{"properties":{"compute":{"kind":"kubernetes","namespace":"default"},"allowedNamespaces":["*"]}}`
)

// TestRoles_D46 walks a team's ways through the real server.
func TestRoles_D46(t *testing.T) {
	t.Parallel()
	f, as := people(t)
	root := as("root")
	for _, g := range []string{shop, bank} {
		root.want(200, "PUT", g, `{}`)
		root.want(200, "PUT", g+env+"e", envOf)
	}
	root.give(shop, "reader", "user:u-reader", "Reader")
	root.give(shop, "dev", "user:u-dev", "Contributor")
	root.give(shop, "owner", "user:u-owner", "Owner")
	root.give(plane, "far", "user:u-far", "Owner", "scope", bank)
	reader, dev, owner, far := as("reader"), as("dev"), as("owner"), as("far")

	kept := shop + store + "s"
	body := strings.Replace(secret, `"type"`, `"environment":"`+shop+env+`e","type"`, 1)
	put := dev.want(201, "PUT", kept, body)
	status := strings.TrimPrefix(put.header.Get("Azure-AsyncOperation"), f.url)
	f.check(dev.send("GET", status, "", "Prefer", "wait=10"), 200, "the operation")
	t.Run("D-46 operations are their resource's", func(t *testing.T) {
		reader.want(200, "GET", status, "")
		as("nobody").want(403, "GET", status, "", "role Reader")
		far.want(403, "GET", status, "", "role Reader")
	})
	t.Run("D-46 secrets need more than Reader", func(t *testing.T) {
		reader.want(200, "GET", kept, "")
		reader.want(403, "POST", kept+"/listSecrets", `{}`, "role Contributor", "scope "+shop)
		a := dev.want(200, "POST", kept+"/listSecrets", `{}`)
		if !strings.Contains(a.raw, "hunter2-canary") {
			t.Errorf("no secret: %s", a.raw)
		}
	})
	t.Run("D-46 governing needs Owner", func(t *testing.T) {
		dev.want(403, "PUT", shop+env+"mine", envOf, "role Owner")
		owner.want(200, "PUT", shop+env+"mine", envOf)
		dev.want(403, "PUT", shop+roles+"x", `{"properties":{"principal":{"kind":"user","name":"u-dev"},"role":"Owner"}}`, "role Owner")
		owner.give(shop, "friend", "user:u-friend", "Reader")
		as("friend").want(200, "GET", shop, "")
		owner.want(403, "PUT", plane+roles+"x", `{"properties":{"principal":{"kind":"user","name":"u-owner"},"role":"Owner"}}`, "role Owner")
		owner.want(403, "PUT", plane+"/providers/System.Resources/resourceproviders/My.Types/manifest", `{}`, "role Owner", "scope "+plane)
		far.want(200, "PUT", bank+env+"mine", envOf) // by a scope below where the assignment stands
		far.want(403, "GET", shop, "")
	})
	t.Run("D-46 what a body names takes rights too", func(t *testing.T) {
		dev.want(403, "PUT", shop+store+"x", strings.Replace(secret, `"type"`, `"environment":"`+bank+env+`e","type"`, 1), "properties.environment", "role Reader", "scope "+bank)
		root.give(bank, "dev", "user:u-dev", "Reader")
		dev.want(201, "PUT", shop+store+"x", strings.Replace(secret, `"type"`, `"environment":"`+bank+env+`e","type"`, 1))
		// Connecting to a resource brings its secrets along.
		link := `{"properties":{"environment":"` + shop + env + `e","connections":{"db":{"source":"` + bank + `/providers/Applications.Core/extenders/db"}}}}`
		dev.want(403, "PUT", shop+"/providers/Applications.Core/extenders/y", link, "properties.connections", "role Contributor", "scope "+bank)
		dev.want(403, "PATCH", shop+store+"s", link, "properties.connections")
		// No other spelling of an id is a way round.
		dev.want(400, "PUT", shop+"/providers/Applications.Core/extenders/y", strings.Replace(link, `"source":"/planes`, `"source":"/plane\u017f`, 1))
	})
	t.Run("D-46 parents are made by who may write them", func(t *testing.T) {
		of := func(app string) string {
			return `{"implicitParents":true,"properties":{"environment":"` + shop + env + `e","application":"` + app + `"}}`
		}
		const at = shop + "/providers/Applications.Core/extenders/p"
		app := "/providers/Applications.Core/applications/planted"
		dev.want(403, "PUT", at, of(bank+app), "properties.application", "role Contributor", "scope "+bank)
		root.want(404, "GET", bank+app, "")
		dev.want(201, "PUT", at, of(shop+app))
		dev.want(200, "GET", shop+app, "")
		root.want(200, "PUT", bank+app, `{"properties":{"environment":"`+bank+env+`e"}}`)
		dev.want(201, "PUT", shop+"/providers/Applications.Core/extenders/q", of(bank+app)) // it is there: nothing is made
	})
	t.Run("D-46 a graph shows what its reader may see", func(t *testing.T) {
		const extenders = "/providers/Applications.Core/extenders/"
		app := shop + "/providers/Applications.Core/applications/shown"
		root.want(200, "PUT", app, `{"properties":{"environment":"`+shop+env+`e"}}`)
		root.want(201, "PUT", shop+extenders+"near", `{"properties":{"environment":"`+shop+env+`e","application":"`+app+`"}}`)
		root.want(201, "PUT", bank+extenders+"far", `{"properties":{"environment":"`+shop+env+`e","application":"`+app+`","connections":{"n":{"source":"`+shop+extenders+`near"}}}}`)
		if all := root.want(200, "POST", app+"/getGraph", `{}`); strings.Count(all.raw, bank+extenders+"far") != 2 {
			t.Errorf("root sees %s", all.raw)
		}
		if a := reader.want(200, "POST", app+"/getGraph", `{}`); strings.Contains(a.raw, bank) || !strings.Contains(a.raw, shop+extenders+"near") {
			t.Errorf("who reads the group sees beyond it: %s", a.raw)
		}
	})
	t.Run("D-46 owners are for controllers", func(t *testing.T) {
		dev.want(403, "PUT", shop+store+"z", `{"owner":{"cluster":"east","namespace":"n","kind":"Recipe","name":"r","uid":"1"},`+secret[1:], "role Controller for cluster east")
	})
	t.Run("D-46 who wrote it", func(t *testing.T) {
		a := reader.send("GET", kept, "", "x-ms-arm-resource-system-data", `{"createdBy":"mallory"}`)
		data, _ := a.body["systemData"].(map[string]any)
		if data["createdBy"] != "u-dev" || data["createdByType"] != "User" {
			t.Errorf("systemData is %v", data)
		}
		said := dev.send("PUT", kept, body, "x-ms-arm-resource-system-data", `{"createdBy":"mallory","lastModifiedBy":"mallory"}`)
		if strings.Contains(said.raw, "mallory") {
			t.Errorf("the client's own word counts: %s", said.raw)
		}
	})
	t.Run("D-48 pages of other sites", func(t *testing.T) {
		f.check(dev.send("PUT", shop, `{}`, "Sec-Fetch-Site", "cross-site"), 403, "cross-site", "another site")
		f.check(dev.send("PUT", shop, `{}`, "Origin", "https://evil.example"), 403, "cross-origin", "another site")
	})
	t.Run("D-46 every decision is recorded", func(t *testing.T) {
		before := len(f.audit.all())
		allowed := reader.want(200, "GET", kept, "")
		refused := reader.want(403, "DELETE", kept, "")
		nobody := f.caller().want(401, "GET", kept, "")
		list := f.audit.all()[before:]
		if len(list) != 3 {
			t.Fatalf("%d records: %+v", len(list), list)
		}
		for n, want := range []struct {
			a       answer
			who     string
			verb    string
			allowed bool
			reason  string
		}{
			{allowed, "user:u-reader", "read", true, "Reader of user:u-reader at " + shop},
			{refused, "user:u-reader", "delete", false, "role Contributor"},
			{nobody, "", "authenticate", false, "bearer token"},
		} {
			r := list[n]
			if r.Principal != want.who || r.Verb != want.verb || r.Allowed != want.allowed || !strings.Contains(r.Reason, want.reason) ||
				r.Request != want.a.header.Get("x-ms-request-id") || r.At.IsZero() || n < 2 && !strings.EqualFold(r.ID, kept) {
				t.Errorf("record %d is %+v", n, r)
			}
		}
		all, err := json.Marshal(f.audit.all())
		if err != nil || strings.Contains(string(all), "hunter2") || strings.Contains(f.log.String(), "hunter2") {
			t.Errorf("a secret is in the audit log or the log: %v", err)
		}
	})
}

// TestAuditRecords_D46: the audit log is for those who govern the plane, in pages
// and narrowed.
func TestAuditRecords_D46(t *testing.T) {
	t.Parallel()
	f, as := people(t)
	root := as("root")
	root.want(200, "PUT", shop, `{}`)
	root.give(shop, "owner", "user:u-owner", "Owner")
	root.give(plane, "governs", "user:u-governs", "Owner")
	root.give(plane, "dev", "user:u-dev", "Contributor")
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	var records []kept.AuditRecord
	for n := range 5 {
		who := []string{"user:a", "user:b"}[n%2]
		records = append(records, kept.AuditRecord{Time: at.Add(time.Duration(n) * time.Minute), Principal: who, Action: "read", Target: fmt.Sprintf("%s/providers/My.Types/things/x%d", shop, n), Allowed: n != 3})
	}
	if err := f.store.AppendAudit(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	const log = plane + "/providers/System.Resources/auditRecords"
	as("dev").want(403, "GET", log, "", "role Owner", "scope "+plane)
	as("owner").want(403, "GET", log, "", "role Owner", "scope "+plane)
	targets := func(a answer) (out []string) {
		list, _ := a.body["value"].([]any)
		for _, e := range list {
			id, _ := e.(map[string]any)["target"].(string)
			out = append(out, id[strings.LastIndexByte(id, '/')+1:])
		}
		return out
	}
	for query, want := range map[string]string{
		"": "x4 x3 x2 x1 x0", "principal=user:b": "x3 x1", "id=" + shop: "x4 x3 x2 x1 x0", "id=" + shop + "/providers/my.types/THINGS/X2": "x2", "id=" + bank: "",
		"since=2026-01-31T12:02:00Z": "x4 x3 x2", "until=2026-01-31T12:02:00Z": "x1 x0", "since=2026-01-31T14:01:00%2B02:00&until=2026-01-31T12:02:00Z": "x1",
		"refused=true": "x3", "principal=user:a&refused=true": "",
	} {
		if got := strings.Join(targets(as("governs").want(200, "GET", log+version+"&"+query, "")), " "); got != want {
			t.Errorf("D-46: ?%s answers %q, want %q", query, got, want)
		}
	}
	var got []string
	for next := log + version + "&top=2"; next != ""; {
		a := root.want(200, "GET", next, "")
		got = append(got, targets(a)...)
		link, _ := a.body["nextLink"].(string)
		next = strings.TrimPrefix(link, f.url)
	}
	if all := strings.Join(got, " "); all != "x4 x3 x2 x1 x0" {
		t.Errorf("D-46: the pages have %s", all)
	}
	for _, bad := range []string{"since=yesterday", "until=1", "refused=maybe", "id=nonsense", "top=0"} {
		root.want(400, "GET", log+version+"&"+bad, "")
	}
}

// TestControllerOwners_D46: a controller's account writes and deletes only what
// stands for objects of its own cluster.
func TestControllerOwners_D46(t *testing.T) {
	t.Parallel()
	f, as := people(t)
	root := as("root")
	root.want(200, "PUT", shop, `{}`)
	root.want(200, "PUT", shop+env+"e", envOf)
	for _, c := range []string{"east", "west"} {
		root.give(plane, c, "user:u-"+c, "Controller", "cluster", c)
	}
	east, west := as("east"), as("west")
	body := func(cluster, uid, more string) string {
		return fmt.Sprintf(`{"owner":{"cluster":"%s","namespace":"n","kind":"Recipe","name":"r","uid":"%s"}%s,"properties":{"environment":"%s","type":"generic","data":{}}}`,
			cluster, uid, more, shop+env+"e")
	}
	settled := func(c *caller, a answer) {
		t.Helper()
		f.check(c.send("GET", strings.TrimPrefix(a.header.Get("Azure-AsyncOperation"), f.url), "", "Prefer", "wait=10"), 200, "the operation")
	}
	at := shop + store + "r"
	east.want(403, "PUT", at, strings.Replace(body("east", "1", ""), `"owner":`, `"other":`, 1), "names no owner")
	east.want(403, "PUT", at, body("west", "1", ""), "owner is of cluster west")
	settled(east, east.want(201, "PUT", at, body("east", "1", "")))
	settled(east, east.want(201, "PUT", at, body("east", "2", `,"replaces":"1"`))) // its own former object
	west.want(403, "PUT", at, body("west", "9", `,"replaces":"2"`), "stands for another's")
	west.want(409, "PUT", at, body("west", "9", "")) // the store tells of the first owner
	west.want(409, "PUT", at, body("west", "2", "")) // a uid says nothing beyond its cluster
	if a := east.want(200, "GET", at, ""); !strings.Contains(a.raw, `"cluster":"east"`) {
		t.Errorf("east's resource stands for another's: %s", a.raw)
	}
	west.want(200, "GET", at, "")
	east.want(404, "PATCH", shop+store+"none", `{"tags":{}}`)
	west.want(403, "PATCH", at, `{"tags":{"a":"b"}}`, "stands for another's")
	east.want(403, "DELETE", at, "", "Radial-Owner-Uid")
	f.check(west.send("DELETE", at, "", "Radial-Owner-Uid", "2"), 403, "another cluster's deletion", "stands for another's")
	east.want(403, "DELETE", shop, "", "no such resource")
	east.want(403, "PUT", shop+env+"mine", envOf, "role Owner")
	f.check(east.send("DELETE", at, "", "Radial-Owner-Uid", "2"), 202, "its own deletion")
}
