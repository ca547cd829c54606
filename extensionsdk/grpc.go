package extensionsdk

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/radial-project/radial/extensionsdk/rpc"
)

// ConfigIDHeader is the gRPC header in which the mark of a place travels both
// ways, since the messages have no member for it. Who does not know it ignores
// it.
const ConfigIDHeader = "radial-config-id"

// GRPC makes a server of the local-deploy service.
func GRPC(x Extension) *grpc.Server {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(MaxRequest+64<<10), grpc.MaxSendMsgSize(MaxResponse+64<<10))
	rpc.RegisterBicepExtensionServer(s, &grpcServer{x: x})
	return s
}

type grpcServer struct {
	rpc.UnimplementedBicepExtensionServer
	x Extension
}

func (s *grpcServer) Ping(context.Context, *rpc.Empty) (*rpc.Empty, error) { return &rpc.Empty{}, nil }

func (s *grpcServer) GetTypeFiles(ctx context.Context, _ *rpc.Empty) (*rpc.TypeFilesResponse, error) {
	t, ok := s.x.(Typed)
	if !ok {
		return &rpc.TypeFilesResponse{}, nil
	}
	index, files, err := t.TypeFiles(ctx)
	return &rpc.TypeFilesResponse{IndexFile: index, TypeFiles: files}, err
}

func (s *grpcServer) Preview(ctx context.Context, r *rpc.ResourceSpecification) (*rpc.LocalExtensibilityOperationResponse, error) {
	spec, err := specification(ctx, r)
	if err != nil {
		return failed(err)
	}
	answer, err := s.x.Preview(ctx, spec)
	if err != nil {
		return failed(err)
	}
	return made(ctx, &answer)
}

func (s *grpcServer) CreateOrUpdate(ctx context.Context, r *rpc.ResourceSpecification) (*rpc.LocalExtensibilityOperationResponse, error) {
	spec, err := specification(ctx, r)
	if err != nil {
		return failed(err)
	}
	answer, err := s.x.CreateOrUpdate(ctx, spec)
	if err != nil {
		return failed(err)
	}
	if answer.Operation != nil {
		if err := s.follow(ctx, *answer.Operation); err != nil {
			return failed(err)
		}
		identifiers := answer.Operation.Identifiers
		if identifiers == nil {
			preview, err := s.x.Preview(ctx, spec)
			if err != nil {
				return failed(err)
			}
			identifiers = preview.Identifiers
		}
		now, err := s.x.Get(ctx, Reference{Type: spec.Type, APIVersion: spec.APIVersion, Identifiers: identifiers, Config: spec.Config, ConfigID: spec.ConfigID})
		if err != nil {
			return failed(err)
		}
		return made(ctx, &now)
	}
	return made(ctx, answer.Resource)
}

func (s *grpcServer) Get(ctx context.Context, r *rpc.ResourceReference) (*rpc.LocalExtensibilityOperationResponse, error) {
	ref, err := reference(ctx, r)
	if err != nil {
		return failed(err)
	}
	answer, err := s.x.Get(ctx, ref)
	if err != nil {
		return failed(err)
	}
	return made(ctx, &answer)
}

func (s *grpcServer) Delete(ctx context.Context, r *rpc.ResourceReference) (*rpc.LocalExtensibilityOperationResponse, error) {
	ref, err := reference(ctx, r)
	if err != nil {
		return failed(err)
	}
	answer, err := s.x.Delete(ctx, ref)
	if err == nil && answer.Operation != nil {
		err = s.follow(ctx, *answer.Operation)
	}
	if err != nil && !isNotFound(err) {
		return failed(err)
	}
	if answer.Resource == nil {
		answer.Resource = &Resource{Type: ref.Type, APIVersion: ref.APIVersion, Identifiers: ref.Identifiers}
	}
	return made(ctx, answer.Resource)
}

// follow waits for an operation's end.
func (s *grpcServer) follow(ctx context.Context, o Operation) error {
	f, ok := s.x.(Follower)
	for {
		switch o.Status {
		case Succeeded, "":
			return nil
		case Failed, Canceled:
			if o.Error != nil {
				return o.Error
			}
			return Errorf("OperationFailed", "the operation ended as %s", o.Status)
		}
		if !ok {
			return Errorf("InternalError", "the extension answered an operation and cannot follow one")
		}
		wait := time.Minute
		if o.RetryAfterSeconds != nil {
			wait = time.Duration(*o.RetryAfterSeconds) * time.Second
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
		next, err := f.Follow(ctx, o.Handle)
		if err != nil {
			return err
		}
		if next.Handle == nil {
			next.Handle = o.Handle
		}
		o = next
	}
}

func specification(ctx context.Context, r *rpc.ResourceSpecification) (Specification, error) {
	s := Specification{Type: r.GetType(), APIVersion: r.GetApiVersion(), ConfigID: configID(ctx)}
	var err error
	if s.Properties, err = parse("properties", r.GetProperties()); err != nil {
		return s, err
	}
	if r.Config != nil {
		s.Config, err = parse("config", r.GetConfig())
	}
	return s, err
}

func reference(ctx context.Context, r *rpc.ResourceReference) (Reference, error) {
	ref := Reference{Type: r.GetType(), APIVersion: r.GetApiVersion(), ConfigID: configID(ctx)}
	var err error
	if ref.Identifiers, err = parse("identifiers", r.GetIdentifiers()); err != nil {
		return ref, err
	}
	if r.Config != nil {
		ref.Config, err = parse("config", r.GetConfig())
	}
	return ref, err
}

func parse(member, text string) (map[string]any, error) {
	m := map[string]any{}
	if err := Unmarshal([]byte(text), &m); err != nil {
		return nil, Errorf(CodeInvalid, "%s is not a JSON object: %v", member, err).At("/" + member)
	}
	return m, nil
}

func configID(ctx context.Context) string {
	in, _ := metadata.FromIncomingContext(ctx)
	if v := in.Get(ConfigIDHeader); len(v) > 0 {
		return v[0]
	}
	return ""
}

func made(ctx context.Context, r *Resource) (*rpc.LocalExtensibilityOperationResponse, error) {
	if r == nil {
		return failed(Errorf("InternalError", "the extension answered no resource"))
	}
	if r.Status == Failed || r.Status == Canceled {
		if r.Error != nil {
			return failed(r.Error)
		}
		return failed(Errorf("ResourceFailed", "the resource is %s", r.Status))
	}
	if r.ConfigID != "" {
		if err := grpc.SetHeader(ctx, metadata.Pairs(ConfigIDHeader, r.ConfigID)); err != nil {
			return nil, err
		}
	}
	out := &rpc.Resource{Type: r.Type, Identifiers: text(r.Identifiers), Properties: text(r.Properties)}
	if r.APIVersion != "" {
		out.ApiVersion = &r.APIVersion
	}
	if r.Status != "" {
		out.Status = &r.Status
	}
	return &rpc.LocalExtensibilityOperationResponse{Resource: out}, nil
}

func failed(err error) (*rpc.LocalExtensibilityOperationResponse, error) {
	e := asError(err)
	out := &rpc.Error{Code: e.Code, Message: e.Message}
	if e.Target != "" {
		out.Target = &e.Target
	}
	for _, d := range e.Details {
		detail := &rpc.ErrorDetail{Code: d.Code, Message: d.Message}
		if d.Target != "" {
			detail.Target = &d.Target
		}
		out.Details = append(out.Details, detail)
	}
	if e.Inner != nil {
		if raw, err := json.Marshal(e.Inner); err == nil {
			inner := string(raw)
			out.InnerError = &inner
		}
	}
	return &rpc.LocalExtensibilityOperationResponse{ErrorData: &rpc.ErrorData{Error: out}}, nil
}
