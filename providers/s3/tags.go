package s3

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"regexp"
	"strconv"
	"time"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// Tags of whatever the provider makes (C-148).
const (
	tagInstallation = "radial-installation"
	tagProject      = "radial-project"
	tagService      = "radial-service"
	tagPurpose      = "radial-purpose"
	tagAccount      = "radial-account"
	tagLocation     = "radial-location"
	// tagRequested is when the request was made that this was made for, in
	// seconds: the API server's time, so that no second clock has a say in
	// whether a thing was there before (C-147). Stores tell the time of a
	// bucket's last change, some of them.
	tagRequested = "radial-requested"
)

// Purposes of what is no bucket.
const (
	purposeIdentity   = "identity"
	purposeCredential = "credential"
)

var tagText = regexp.MustCompile(`^[A-Za-z0-9+=._:/@-]([A-Za-z0-9 +=._:/@-]{0,198}[A-Za-z0-9+=._:/@-])?$`)

// tagValue is text as a tag can hold it: the installation's words are free.
func tagValue(text string) string {
	if tagText.MatchString(text) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// owner are the tags that say whose a thing is.
func owner(r provider.Request, purpose string) map[string]string {
	tags := map[string]string{tagInstallation: r.Installation, tagProject: r.Subject.Project, tagPurpose: purpose}
	if r.Subject.Service != "" {
		tags[tagService] = r.Subject.Service
	}
	return tags
}

// tags are all of a new thing.
func tags(r provider.Request, purpose string) map[string]string {
	t := owner(r, purpose)
	t[tagAccount], t[tagLocation] = tagValue(r.Account), tagValue(r.Location)
	t[tagRequested] = strconv.FormatInt(r.CreatedAt.Unix(), 10)
	return t
}

// owned says whether a thing with these tags is the subject's, exactly, and
// whether it is where the installation is now.
func owned(have map[string]string, r provider.Request, purpose string) (owns, here bool) {
	whose := maps.Clone(have)
	maps.DeleteFunc(whose, func(k, _ string) bool {
		return k != tagInstallation && k != tagProject && k != tagService && k != tagPurpose
	})
	return maps.Equal(whose, owner(r, purpose)), have[tagAccount] == tagValue(r.Account) && have[tagLocation] == tagValue(r.Location)
}

// thing tells from its tags how a thing came to be.
func thing(have map[string]string, made bool) provider.Thing {
	t := provider.Thing{Made: made}
	if s, err := strconv.ParseInt(have[tagRequested], 10, 64); err == nil {
		t.CreatedAt = time.Unix(s, 0)
	}
	return t
}

// purposeOf is a bucket's purpose by whose it is.
func purposeOf(s v1alpha1.Subject) string {
	if s.Service == "" {
		return v1alpha1.PurposeBackup
	}
	return v1alpha1.PurposeService
}
