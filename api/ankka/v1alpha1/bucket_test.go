package v1alpha1

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

func TestBucketName(t *testing.T) {
	x := strings.Repeat
	for _, c := range []struct{ rule, prefix, project, service, want string }{
		{"C-79", "acme", "shop", "reports", "acme-shop-reports-ae7cc739"},
		{"C-80 C-82", "acme", "shop-a", "b", "acme-shop-a-b-afbb04ed"},
		{"C-80 C-82", "acme", "shop", "a-b", "acme-shop-a-b-a80cf879"},
		{"C-80", "acme", "casino", "kyc", "acme-casino-kyc-f3561922"},
		{"C-84", "ankka", x("p", 40), x("s", 40), "ankka-" + x("p", 40) + "-" + x("s", 7) + "-" + digest(x("p", 40)+"."+x("s", 40))},
		{"C-85 C-86", "ankka", x("p", 57), x("s", 20), "ankka-" + x("p", 46) + "-s-" + digest(x("p", 57)+"."+x("s", 20))},
		{"C-86", x("n", 50), x("p", 57), x("s", 63), x("n", 50) + "-p-s-" + digest(x("p", 57)+"."+x("s", 63))},
	} {
		got, err := BucketName(c.prefix, c.project, c.service)
		if err != nil || got != c.want {
			t.Errorf("%s: %s/%s: %s, %v; want %s", c.rule, c.project, c.service, got, err, c.want)
		}
	}
	if got, _ := BucketName("ankka", x("p", 40), x("s", 40)); len(got) != 63 {
		t.Errorf("C-84: %d characters", len(got))
	}
	for _, c := range [][3]string{{"", "shop", "reports"}, {"acme", "shop", ""}, {"acme", "", "reports"}, {"acme", "shop", "a.b"}, {x("n", 51), "shop", "reports"}} {
		if got, err := BucketName(c[0], c[1], c[2]); err == nil {
			t.Errorf("%q makes %s", c, got)
		}
	}
}

func TestBackupBucketName_C150(t *testing.T) {
	x := strings.Repeat
	for _, c := range []struct{ prefix, project, want string }{
		{"acme", "shop", "acme-shop-" + digest("shop") + "-backup"},
		{"ankka", x("p", 57), "ankka-" + x("p", 41) + "-" + digest(x("p", 57)) + "-backup"},
		{x("n", 50), "shop", x("n", 45) + "-s-" + digest("shop") + "-backup"},
	} {
		got, err := BackupBucketName(c.prefix, c.project)
		if err != nil || got != c.want || len(got) > 63 {
			t.Errorf("C-150: %s: %s, %v; want %s", c.project, got, err, c.want)
		}
	}
	for _, c := range []struct {
		s       Subject
		purpose string
		ok      bool
	}{
		{Subject{"shop", "reports"}, PurposeService, true}, {Subject{Project: "shop"}, PurposeBackup, true},
		{Subject{"shop", "reports"}, PurposeBackup, false}, {Subject{Project: "shop"}, PurposeService, false}, {Subject{"shop", "reports"}, "", false},
	} {
		if name, err := BucketNameFor("acme", c.s, c.purpose); (err == nil) != c.ok {
			t.Errorf("C-77: %s for %s: %s, %v", c.purpose, c.s, name, err)
		}
	}
}

var (
	bucketForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	serviceEnd = regexp.MustCompile(`-[0-9a-f]{8}$`)
)

func checkBuckets(t *testing.T, prefix, project, service string) {
	t.Helper()
	name, err := BucketName(prefix, project, service)
	if err != nil {
		return
	}
	backup, err := BackupBucketName(prefix, project)
	if err != nil {
		t.Fatalf("C-150: %v", err)
	}
	for _, n := range []string{name, backup} {
		if !bucketForm.MatchString(n) {
			t.Errorf("C-83: %q", n)
		}
	}
	d := digest(project + "." + service)
	if !strings.HasSuffix(name, "-"+d) {
		t.Errorf("C-81: %s lost its digest %s", name, d)
	}
	// Not equal to this one, and not of the form of any.
	if serviceEnd.MatchString(backup) || !strings.HasSuffix(backup, "-"+digest(project)+"-backup") {
		t.Errorf("C-77: backup bucket %s may be a service's", backup)
	}
	p, s := len(project), len(service)
	middle := strings.TrimSuffix(strings.TrimPrefix(name, prefix+"-"), "-"+d)
	if full := len(prefix) + p + s + 11; full <= 63 && middle != project+"-"+service {
		t.Errorf("C-79: %s is cut without need", name)
	} else if full > 63 && len(name) != 63 {
		t.Errorf("C-83: %s is cut too far", name)
	}
	// The service is one character before the project loses any.
	if !strings.HasPrefix(middle, project+"-") && (middle[len(middle)-2:] != "-"+service[:1] || !strings.HasPrefix(project, middle[:len(middle)-2]) || len(middle) < 3) {
		t.Errorf("C-84/C-85/C-86: %s of %s/%s", middle, project, service)
	}
}

func FuzzBucketNames_C83(f *testing.F) {
	f.Add("acme", "shop", "reports")
	f.Add("a-", "a-backup", "backup")
	f.Add(strings.Repeat("n", 50), strings.Repeat("p", 57), strings.Repeat("s", 63))
	f.Fuzz(checkBuckets)
}

func TestBucketNames_C83(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 83))
	text := func(limit int) string {
		b := make([]byte, 1+r.IntN(limit))
		for i := range b {
			b[i] = "abcdef0123456789-"[r.IntN(17)]
		}
		return string(b)
	}
	made := 0
	seen := map[string]string{}
	for range 30000 {
		prefix, project, service := "p"+text(49), text(57), text(63)
		checkBuckets(t, prefix, project, service)
		if n, err := BucketName("acme", project, service); err == nil {
			made++
			if was, ok := seen[n]; ok && was != project+"."+service {
				t.Errorf("C-82: %s is both %s and %s/%s", n, was, project, service)
			}
			seen[n] = project + "." + service
		}
	}
	if made < 10000 {
		t.Errorf("only %d names were made", made)
	}
}

func TestNamePrefix_C149(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"acme": true, "a": true, "0-": true, strings.Repeat("n", 50): true,
		strings.Repeat("n", 51): false, "-a": false, "A": false, "a_b": false, "a.b": false, "ä": false, "": false, "a ": false,
	} {
		if err := ValidateNamePrefix(prefix); (err == nil) != ok {
			t.Errorf("C-149: %q: %v", prefix, err)
		}
	}
}
