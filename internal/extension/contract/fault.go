package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/radial-project/radial/extensionsdk"
	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// What extensions call the two refusals that have a meaning of their own: the
// contract has no fixed codes for them, these are the ones in use.
var (
	notFoundCodes = map[string]bool{"notfound": true, "resourcenotfound": true, "objectnotfound": true}
	placeCodes    = map[string]bool{"configidmismatch": true, "invalidconfigid": true, "clustermismatch": true, "targetmismatch": true}
)

// notFound reports whether an extension says that a resource is not there.
func notFound(err error) bool {
	var e *sdk.Error
	return errors.As(err, &e) && notFoundCodes[strings.ToLower(e.Code)]
}

// fault is what went wrong with a call, as everybody else sees it: it names the
// resource, the extension and its reason, and holds no secret.
func (t *Target) fault(ctx context.Context, err error, about call) error {
	var refused *sdk.Error
	if errors.As(err, &refused) {
		err = t.refusal(refused, about)
	} else if ctx.Err() != nil && core.CodeOf(err) == core.CodeInternal {
		return fmt.Errorf("%s: %w", t.name(about), context.Cause(ctx))
	} else if e := core.AsError(err); e.Target == "" {
		err = core.Errorf(e.Code, "%s: %w", t.name(about), e)
	}
	return t.concealed(ctx, err)
}

func (t *Target) concealed(ctx context.Context, err error) error {
	for _, values := range []*conceal.Values{&t.values, t.o.Own, conceal.From(ctx)} {
		if values != nil {
			err = values.Error(err)
		}
	}
	return err
}

// refusal is an extension's no.
func (t *Target) refusal(e *sdk.Error, about call) *core.Error {
	code := extension.CodeRefused
	switch lower := strings.ToLower(e.Code); {
	case notFoundCodes[lower] && about.does == "get":
		return core.Errorf(core.CodeNotFound, "%s does not exist", t.name(about))
	case about.does == "preview" && e.Code == sdk.CodePreviewNotSupported:
		code = extension.CodePreviewNotSupported
	case placeCodes[lower]:
		code = extension.CodeWrongTarget
	}
	message := strings.TrimSpace(e.Message)
	if message == "" {
		message = "it gave no reason"
	}
	out := core.Errorf(code, "%s cannot %s %s: %s (%s)", t, about.does, describe(about), strings.TrimSuffix(message, "."), aside(e))
	if len(about.identifiers) > 0 {
		out.Target = describe(about)
	} else {
		out.Target = about.typ
	}
	for _, d := range e.Details {
		out.Details = append(out.Details, core.Error{Code: core.Code(d.Code), Message: d.Message, Target: member(d.Target)})
	}
	if raw, err := json.Marshal(e.Inner); err == nil && e.Inner != nil && len(raw) <= maxInner {
		out.Info = append(out.Info, core.ErrorInfo{Type: "innererror", Info: e.Inner})
	}
	return out
}

// maxInner is how much of an extension's own details is kept, in bytes.
const maxInner = 4 << 10

// aside is an error's code and what of the request it is about.
func aside(e *sdk.Error) string {
	code := e.Code
	if code == "" {
		code = "no code"
	}
	if e.Target == "" || e.Target == "/" {
		return code
	}
	return code + " at " + member(e.Target)
}

// member is a JSON pointer as templates write it: /properties/a/0/b is
// properties.a[0].b.
func member(pointer string) string {
	if !strings.HasPrefix(pointer, "/") {
		return pointer
	}
	var b strings.Builder
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch {
		case part != "" && strings.Trim(part, "0123456789") == "":
			b.WriteString("[" + part + "]")
		case b.Len() == 0:
			b.WriteString(part)
		default:
			b.WriteString("." + part)
		}
	}
	return b.String()
}

// name names a resource in a sentence.
func (t *Target) name(about call) string { return describe(about) + " of " + t.String() }

// describe names a resource as far as it is known; a body's values are no names,
// for any of them may be a secret.
func describe(about call) string {
	if len(about.identifiers) == 0 {
		return about.typ
	}
	text := string(about.identifiers)
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return about.typ + " " + text
}

// broken is an answer that the contract does not allow.
func (t *Target) broken(format string, args ...any) error {
	return core.Errorf(core.CodeTarget, "%s (%s) %s: it does not keep to the contract, see docs/extensions.md", t, t.o.Place, fmt.Sprintf(format, args...))
}
