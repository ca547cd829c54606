package deployment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/store"
)

// A deployment's events are lines of its operation's log: for people, and behind
// a record separator as JSON for programs. So they are stored, watched and swept
// as every operation's log is.

// eventMark stands between the two.
const eventMark = "\x1e"

// maxEvent bounds the JSON of an event, in bytes, so that a line is never cut.
const maxEvent = 1500

// eventLine is an event as a line of the log.
func eventLine(ctx context.Context, e deploy.Event) string {
	e.Text = short(conceal.Text(ctx, e.Text), 200)
	if e.Error != nil {
		e.Error = concealError(ctx, e.Error)
	}
	raw, err := json.Marshal(e)
	if err == nil && len(raw) > maxEvent && e.Error != nil {
		e.Error = core.Errorf(e.Error.Code, "%s", short(e.Error.Message, 600)).WithTarget(short(e.Error.Target, 200))
		raw, err = json.Marshal(e)
	}
	text := short(EventText(e), 400)
	if err != nil || len(raw) > maxEvent {
		return text
	}
	return text + eventMark + string(raw)
}

func short(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// SplitLine parts a line of an operation's log into its text and the JSON of its
// event, nil where it has none.
func SplitLine(line string) (text string, event json.RawMessage) {
	text, raw, ok := strings.Cut(line, eventMark)
	if !ok || !json.Valid([]byte(raw)) {
		return text, nil
	}
	return text, json.RawMessage(raw)
}

// EventText is an event for people, as one line.
func EventText(e deploy.Event) string {
	what := e.Symbol
	switch {
	case what == "" && e.ID != "": // an entry of deletedResources has no symbol
		what = e.ID[strings.LastIndexByte(e.ID, '/')+1:]
	case what == "":
		what = "outputs"
	}
	if e.Deployment != "" {
		what = e.Deployment + "/" + what
	}
	if e.Type != "" {
		what += " (" + e.Type + ")"
	}
	if e.Operation == "Stack" {
		return e.Text
	}
	verb := map[string]string{"Create": "", "Read": "read ", "Delete": "delete ", "Detach": "let go of ", "Action": "ask "}[e.Operation]
	out := e.State + "  " + verb + what
	if e.Duration > 0 && e.State != "Running" {
		out += "  " + e.Duration.Round(time.Millisecond).String()
	}
	switch {
	case e.Error != nil:
		out += ": " + e.Error.Message
	case e.Text != "":
		out += ": " + e.Text
	}
	return out
}

// step is one operation of a deployment: the last that was said of it.
type step struct {
	deploy.Event
	began time.Time
}

func (s step) id() string {
	sum := sha256.Sum256([]byte(s.Deployment + "\x00" + s.Operation + "\x00" + s.Symbol))
	return strings.ToUpper(hex.EncodeToString(sum[:8]))
}

// steps folds the log of an operation into the steps of the deployment at a path,
// in the order in which they began.
func steps(log []store.Message, path string) []step {
	at := map[string]int{}
	var out []step
	for _, m := range log {
		_, raw := SplitLine(m.Text)
		if raw == nil {
			continue
		}
		var e deploy.Event
		if json.Unmarshal(raw, &e) != nil || e.Deployment != path {
			continue
		}
		if e.Time.IsZero() {
			e.Time = m.Time
		}
		key := e.Operation + "\x00" + cmp.Or(e.Symbol, e.ID)
		i, ok := at[key]
		if !ok {
			at[key] = len(out)
			out = append(out, step{e, e.Time})
			continue
		}
		if e.ID == "" {
			e.ID = out[i].ID
		}
		if e.Duration == 0 {
			e.Duration = e.Time.Sub(out[i].began)
		}
		out[i].Event = e
	}
	slices.SortStableFunc(out, func(a, b step) int { return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.Symbol, b.Symbol)) })
	return out
}

// shownOperation is one operation of a deployment on the wire.
type shownOperation struct {
	ID          string `json:"id"`
	OperationID string `json:"operationId"`
	Properties  struct {
		ProvisioningOperation string        `json:"provisioningOperation"`
		ProvisioningState     string        `json:"provisioningState"`
		Timestamp             string        `json:"timestamp"`
		Duration              string        `json:"duration"`
		ServiceRequestID      string        `json:"serviceRequestId,omitempty"`
		StatusCode            string        `json:"statusCode,omitempty"`
		StatusMessage         *shownMessage `json:"statusMessage,omitempty"`
		TargetResource        *shownTarget  `json:"targetResource,omitempty"`
	} `json:"properties"`
}

type shownMessage struct {
	Status string      `json:"status,omitempty"`
	Error  *core.Error `json:"error,omitempty"`
}

type shownTarget struct {
	ID           string `json:"id,omitempty"`
	ResourceType string `json:"resourceType,omitempty"`
	ResourceName string `json:"resourceName,omitempty"`
	SymbolicName string `json:"symbolicName,omitempty"`
}

var statusCodes = map[string]string{"Succeeded": "OK", "Failed": "BadRequest", "Canceled": "Conflict", "Running": "Accepted"}

func showStep(id core.ID, st step, operation string) shownOperation {
	out := shownOperation{ID: id.String() + "/operations/" + st.id(), OperationID: st.id()}
	p := &out.Properties
	p.ProvisioningOperation, p.ProvisioningState = st.Operation, st.State
	if st.State == "NotRun" {
		p.ProvisioningState = "NotSpecified"
	}
	p.Timestamp, p.Duration, p.ServiceRequestID = st.Time.UTC().Format(time.RFC3339Nano), ISODuration(st.Duration), operation
	p.StatusCode = statusCodes[st.State]
	if st.Error != nil {
		p.StatusMessage = &shownMessage{Status: st.State, Error: st.Error}
	}
	if st.Symbol != "" {
		t := &shownTarget{ID: st.ID, ResourceType: st.Type, SymbolicName: st.Symbol, ResourceName: st.Symbol}
		if rid, err := core.ParseID(st.ID); err == nil && rid.IsResource() {
			t.ResourceName = rid.Name()
		}
		p.TargetResource = t
	}
	return out
}

// operations are the steps of a deployment, while it runs too. They are kept as
// long as the log of its operation.
func (s *Service) operations(ctx context.Context, r core.Resource) ([]shownOperation, error) {
	f, err := readFacts(r)
	if err != nil {
		return nil, err
	}
	list := []shownOperation{}
	log, err := s.o.Store.Messages(ctx, f.Operation, 0, 0)
	if core.IsCode(err, core.CodeNotFound) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	graph := map[string]string{}
	if f.radius() { // whose clients read every id as one of a plane
		root := r.ID
		if f.Root != "" {
			if root, err = core.ParseID(f.Root); err != nil {
				return nil, err
			}
		}
		outputs, err := s.o.Store.Outputs(ctx, root)
		if err != nil {
			return nil, err
		}
		for _, o := range outputs {
			var h deploy.Handle
			if json.Unmarshal(o.Handle, &h) == nil && h.ID != "" {
				graph[h.ID] = o.ID.String()
			}
		}
	}
	for _, st := range steps(log, f.Path) {
		if id := graph[st.ID]; id != "" {
			st.ID = id
		}
		list = append(list, showStep(r.ID, st, f.Operation))
	}
	return list, nil
}
