package registry

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	sdk "github.com/radial-project/radial/extensionsdk"
)

// misbehaved is an extension that does what extensions do on a bad day; which,
// its types say.
type misbehaved struct{}

// looks counts calls of Get and Follow of one process.
var looks atomic.Int64

func answer(s sdk.Specification, status string) sdk.Answer {
	name, _ := s.Properties["name"].(string)
	echo := map[string]any{}
	for k, v := range s.Config {
		if k != "password" && k != "hidden" {
			echo[k] = v
		}
	}
	return sdk.Answer{Resource: &sdk.Resource{Type: s.Type, Identifiers: map[string]any{"name": name}, Properties: map[string]any{"name": name}, Config: echo, ConfigID: "here", Status: status}}
}

func (misbehaved) Preview(_ context.Context, s sdk.Specification) (sdk.Resource, error) {
	if s.Type == "Unseen" {
		return sdk.Resource{}, sdk.Errorf(sdk.CodePreviewNotSupported, "the server chooses the name")
	}
	return *answer(s, "").Resource, nil
}

func (misbehaved) CreateOrUpdate(ctx context.Context, s sdk.Specification) (sdk.Answer, error) {
	switch s.Type {
	case "CrashOnce": // in the middle of its work, the first time
		mark, _ := s.Properties["mark"].(string)
		if _, err := os.Stat(mark); err == nil {
			return answer(s, ""), nil
		}
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			return sdk.Answer{}, err
		}
		fmt.Fprintln(os.Stderr, "panic: out of luck")
		os.Exit(3)
	case "Crash":
		fmt.Fprintln(os.Stderr, "panic: as always")
		os.Exit(4)
	case "Huge":
		a := answer(s, "")
		a.Resource.Properties["content"] = strings.Repeat("x", sdk.MaxResponse)
		return a, nil
	case "Slow": // takes no notice of the caller's time, or its answer would race with the end of that
		<-time.After(2 * time.Second)
		return answer(s, ""), nil
	case "Talkative": // says every secret that it has, everywhere
		secret, _ := s.Config["password"].(string)
		hidden, _ := s.Config["hidden"].(string)
		said := fmt.Sprintf("config %v, properties %v, as base64 %s", s.Config, s.Properties, base64.StdEncoding.EncodeToString([]byte(secret)))
		fmt.Fprintln(os.Stderr, said)
		fmt.Fprintf(os.Stderr, "and in two lines: %s\n%s\nthat is all\n", secret, hidden)
		return sdk.Answer{}, &sdk.Error{Code: "Refused", Message: said, Target: "/properties/name",
			Details: []sdk.ErrorDetail{{Code: "Detail", Message: "with " + secret, Target: "/config/password"}}, Inner: map[string]any{"config": s.Config}}
	case "Operation", "OperationFails", "Anonymous", "Lost":
		looks.Store(0)
		o := &sdk.Operation{Status: "Running", RetryAfterSeconds: sdk.Wait(0), Handle: map[string]any{"type": s.Type}}
		if s.Type == "Operation" {
			o.RetryAfterSeconds, o.Identifiers = sdk.Wait(1), map[string]any{"name": s.Properties["name"]}
		}
		return sdk.Answer{Operation: o}, nil
	case "Unseen":
		return answer(s, ""), nil
	case "OnItsWay", "Vanishes", "Breaks":
		looks.Store(0)
		return answer(s, "Creating"), nil
	}
	return answer(s, ""), nil
}

func (misbehaved) Get(_ context.Context, r sdk.Reference) (sdk.Resource, error) {
	a := answer(sdk.Specification{Type: r.Type, Properties: r.Identifiers, Config: r.Config}, "").Resource
	n := looks.Add(1)
	switch r.Type {
	case "OnItsWay":
		switch {
		case n <= 3:
			return *a, sdk.Errorf("Flaky", "not now")
		case n <= 5:
			a.Status = "Creating"
		}
	case "Vanishes":
		return *a, sdk.Errorf(sdk.CodeNotFound, "there is none")
	case "Breaks":
		a.Status, a.Error = sdk.Failed, sdk.Errorf("DiskFull", "the disk is full")
	case "Deleting":
		switch {
		case n > 3:
			return *a, sdk.Errorf("ObjectNotFound", "gone")
		default:
			a.Status = "Deleting"
		}
	case "Undeletable":
		a.Status, a.Error = sdk.Failed, sdk.Errorf("Locked", "it is in use")
	case "Stays": // the deletion was given up
	}
	return *a, nil
}

func (misbehaved) Delete(_ context.Context, r sdk.Reference) (sdk.Answer, error) {
	switch r.Type {
	case "Deleting", "Undeletable", "Stays":
		looks.Store(0)
		return answer(sdk.Specification{Type: r.Type, Properties: r.Identifiers}, "Deleting"), nil
	case "Operation":
		looks.Store(0)
		return sdk.Answer{Operation: &sdk.Operation{Status: "Running", RetryAfterSeconds: sdk.Wait(0), Handle: map[string]any{"type": r.Type}}}, nil
	case "Missing":
		return sdk.Answer{}, sdk.Errorf(sdk.CodeNotFound, "there is none")
	}
	return sdk.Answer{}, nil
}

// Follow implements [sdk.Follower].
func (misbehaved) Follow(_ context.Context, handle map[string]any) (sdk.Operation, error) {
	switch n := looks.Add(1); {
	case handle["type"] == "Lost":
		return sdk.Operation{}, sdk.Errorf("Unknown", "no such operation")
	case n < 3:
		return sdk.Operation{Status: "Provisioning", RetryAfterSeconds: sdk.Wait(0), Handle: handle}, nil
	case handle["type"] == "OperationFails":
		return sdk.Operation{Status: sdk.Failed, Error: sdk.Errorf("QuotaExceeded", "there is no room for more")}, nil
	}
	return sdk.Operation{Status: sdk.Succeeded}, nil
}
