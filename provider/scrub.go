package provider

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/radial-project/radial/internal/conceal"
)

// Texts of clouds end in statuses and logs. Values that are known to be secret
// are taken out by package conceal; what is here takes out what looks like one.

var (
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	scheme     = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
	userinfo   = regexp.MustCompile(`://[^/\s@"']+@`)
	accessKey  = regexp.MustCompile(`\b(AKIA|ASIA|GOOG)[0-9A-Z]{12,}\b|\bey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9._-]+`)
	token      = regexp.MustCompile(`[A-Za-z0-9+/_=-]{32,}`)
	// assigned is name=value and name: value of names that secrets have.
	assigned = regexp.MustCompile(`(?i)\b([a-z0-9_-]*(?:authorization|token|secret|password|passwd|signature|credential|access_?key|x-amz-[a-z-]+|x-goog-[a-z-]+))(["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s"'&,;]+)`)
)

// conspicuous takes out what can be nothing but a secret: for words that were
// written for a member.
func conspicuous(text string) string {
	text = privateKey.ReplaceAllString(text, conceal.Mark)
	text = scheme.ReplaceAllString(text, "$1 "+conceal.Mark)
	text = userinfo.ReplaceAllString(text, "://"+conceal.Mark+"@")
	text = accessKey.ReplaceAllString(text, conceal.Mark)
	return token.ReplaceAllStringFunc(text, func(s string) string {
		if strings.ContainsFunc(s, unicode.IsUpper) && strings.ContainsFunc(s, unicode.IsLower) && strings.ContainsFunc(s, unicode.IsDigit) {
			return conceal.Mark
		}
		return s
	})
}

// scrub takes out what may be a secret too: for any other text.
func scrub(text string) string {
	// Hostile text of any length costs the same.
	const limit = 16 << 10
	if len(text) > limit {
		text = text[:limit]
	}
	return conspicuous(assigned.ReplaceAllString(text, "${1}${2}"+conceal.Mark))
}
