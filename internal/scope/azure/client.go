package azure

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	armpolicy "github.com/Azure/azure-sdk-for-go/sdk/azcore/arm/policy"
	armruntime "github.com/Azure/azure-sdk-for-go/sdk/azcore/arm/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// The types of credentials.
const (
	Admin = "Admin"
	User  = "User"
)

// Client makes calls of ARM for one scope.
type Client struct {
	pipeline runtime.Pipeline
	endpoint string
	// scope is the id as the template wrote it, for errors.
	scope string
}

func newClient(as As, o Options, text string) (*Client, error) {
	options := policy.ClientOptions{Cloud: o.Cloud, Transport: o.Transport, Retry: defaultRetry(o.Retry), Telemetry: policy.TelemetryOptions{ApplicationID: "radial/" + core.Version}}
	if len(o.Cloud.Services) == 0 {
		options.Cloud = cloud.AzurePublic
	}
	p, err := armruntime.NewPipeline("radial", core.Version, as.Credential, runtime.PipelineOptions{}, &armpolicy.ClientOptions{ClientOptions: options, DisableRPRegistration: true})
	if err != nil {
		return nil, core.Errorf(core.CodeTarget, "the scope %s cannot be used: the server's settings for Azure are wrong: %w", text, err).WithTarget(text)
	}
	return &Client{p, options.Cloud.Services[cloud.ResourceManager].Endpoint, text}, nil
}

// Post asks an action of a resource and answers the body of its 200.
func (c *Client) Post(ctx context.Context, id *arm.ResourceID, action, apiVersion string) ([]byte, error) {
	r, err := runtime.NewRequest(ctx, http.MethodPost, runtime.JoinPaths(c.endpoint, id.String(), action))
	if err != nil {
		return nil, core.Errorf(core.CodeTarget, "%s of %s cannot be asked: the endpoint of Azure Resource Manager is wrong", action, c.scope).WithTarget(c.scope)
	}
	query := r.Raw().URL.Query()
	query.Set("api-version", apiVersion)
	r.Raw().URL.RawQuery = query.Encode()
	r.Raw().Header.Set("Accept", "application/json")
	answer, err := c.pipeline.Do(r)
	if err != nil {
		return nil, c.unanswered(ctx, action, err)
	}
	body, err := runtime.Payload(answer)
	if err != nil {
		return nil, c.unanswered(ctx, action, err)
	}
	if answer.StatusCode == http.StatusOK {
		return body, nil
	}
	return nil, c.refused(action, answer, body)
}

// unanswered names a request that came back with no answer: nobody was there, or
// the server could not sign in.
func (c *Client) unanswered(ctx context.Context, action string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s of %s: %w", action, c.scope, context.Cause(ctx))
	}
	var signIn interface{ NonRetriable() }
	if errors.As(err, &signIn) {
		return core.Errorf(core.CodeTarget, "%s of %s cannot be asked: the server cannot sign in to Azure: %s: see its workload identity, or AZURE_TENANT_ID, AZURE_CLIENT_ID and the rest of its environment", action, c.scope, firstLines(err)).WithTarget(c.scope)
	}
	return core.Errorf(core.CodeTarget, "%s of %s got no answer: %s", action, c.scope, firstLines(err)).WithTarget(c.scope)
}

// refused says what ARM answered: the action, the status and ARM's own words.
func (c *Client) refused(action string, answer *http.Response, body []byte) error {
	var fault struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &fault)
	said := cut(strings.TrimSpace(fault.Error.Code + ": " + fault.Error.Message))
	if fault.Error.Code == "" {
		said = "without an explanation"
	}
	say := func(code core.Code, remedy string) error {
		return core.Errorf(code, "%s of %s answered %d (%s): %s", action, c.scope, answer.StatusCode, said, remedy).WithTarget(c.scope)
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized:
		return say(core.CodeTarget, "the server's sign-in is not taken there: see its tenant and its identity")
	case http.StatusForbidden:
		return say(core.CodeForbidden, "grant the server's identity the action, for AKS by the role Azure Kubernetes Service Cluster Admin Role (or User Role for credentialType User)")
	case http.StatusNotFound:
		switch strings.ToLower(fault.Error.Code) {
		case "resourcenotfound", "resourcegroupnotfound", "notfound":
			return say(extension.CodeScopeGone, "it does not exist, and nothing in it any more: make it first, or take it out of the template")
		}
		// A subscription that the identity cannot see is answered so too, and a
		// proxy's 404 says nothing at all: neither is a cluster that is gone.
		return say(core.CodeTarget, "it cannot be told whether it exists: see that the server's identity has access to the subscription")
	case http.StatusTooManyRequests:
		wait := answer.Header.Get("Retry-After")
		if wait == "" {
			wait = "some"
		}
		return say(core.CodeTarget, "ARM limits how often it is asked: try again in "+wait+" seconds")
	case http.StatusBadRequest:
		return say(core.CodeTarget, "if local accounts are turned off for the cluster, there are no credentials of the type Admin: write credentialType: \"User\" beside the scope, and grant the server's identity rights in the cluster; or use a kubeConfig of your own (scope type UserOwned)")
	}
	if answer.StatusCode >= 500 {
		return say(core.CodeTarget, "try again later")
	}
	return say(core.CodeTarget, "see what ARM says")
}

// Action is a [Source]: a POST on the resource that answers kubeconfigs.
type Action struct {
	APIVersion string
	// Admin and User are the actions for these types of credentials; one that is
	// "" is the other.
	Admin, User string
}

// Kubeconfig implements [Source].
func (a Action) Kubeconfig(ctx context.Context, c *Client, id *arm.ResourceID, credentialType string) ([]byte, error) {
	action := a.Admin
	if strings.EqualFold(credentialType, User) || action == "" {
		action = a.User
	}
	if action == "" {
		action = a.Admin
	}
	body, err := c.Post(ctx, id, action, a.APIVersion)
	if err != nil {
		return nil, err
	}
	fault := func(why string) error {
		return core.Errorf(core.CodeTarget, "%s of %s answered 200, but %s: see the state of the cluster in Azure", action, c.scope, why).WithTarget(c.scope)
	}
	var answer struct {
		Kubeconfigs []struct {
			Value string `json:"value"`
		} `json:"kubeconfigs"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return nil, fault("not with a list of kubeconfigs")
	}
	if len(answer.Kubeconfigs) == 0 {
		return nil, fault("its list of kubeconfigs is empty")
	}
	kubeconfig, err := base64.StdEncoding.DecodeString(answer.Kubeconfigs[0].Value)
	if err != nil || len(kubeconfig) == 0 {
		return nil, fault("its kubeconfig is not in base64")
	}
	return kubeconfig, nil
}

// firstLines is an error's text without the dumps of requests that the SDK adds.
func firstLines(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n---")
	return cut(strings.Join(strings.Fields(text), " "))
}

// cut bounds what others say.
func cut(text string) string {
	const most = 400
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}
