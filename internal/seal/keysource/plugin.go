package keysource

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	kms "k8s.io/kms/apis/v2"

	"github.com/radial-project/radial/internal/seal"
)

// pluginTimeout bounds one call of a plugin.
const pluginTimeout = 10 * time.Second

// plugin is a key behind the Kubernetes KMS v2 protocol: every cloud's key
// service has such a plugin, and it runs beside the server with its own
// identity, so that none of their libraries are in ours.
//
// What is stored is the plugin's answer as it came: ciphertext, the number of
// the key, annotations.
type plugin struct {
	socket string
	client kms.KeyManagementServiceClient

	mu sync.Mutex
	// keyID is the key that the plugin encrypts with now.
	keyID string
}

func openPlugin(ctx context.Context, socket string) (seal.KEK, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("use the KMS plugin at %s: %w", socket, err)
	}
	p := &plugin{socket: socket, client: kms.NewKeyManagementServiceClient(conn)}
	if err := p.Refresh(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return p, nil
}

func (p *plugin) Source() string { return "the KMS plugin at " + p.socket }

// Refresh asks the plugin how it is and which key it uses.
func (p *plugin) Refresh(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, pluginTimeout)
	defer done()
	s, err := p.client.Status(ctx, &kms.StatusRequest{})
	if err != nil {
		return p.fault("asked for its status", err)
	}
	if s.GetVersion() != "v2" && s.GetVersion() != "v2beta1" {
		return fmt.Errorf("the KMS plugin at %s speaks version %q: Radial needs v2", p.socket, s.GetVersion())
	}
	if s.GetHealthz() != "ok" {
		return fmt.Errorf("the KMS plugin at %s is not well: %s", p.socket, s.GetHealthz())
	}
	if s.GetKeyId() == "" {
		return fmt.Errorf("the KMS plugin at %s names no key", p.socket)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keyID = s.GetKeyId()
	return nil
}

func (p *plugin) fault(what string, err error) error {
	s := status.Convert(err)
	return fmt.Errorf("the KMS plugin at %s cannot be %s (%s: %s): is it running, and may it use its key?", p.socket, what, s.Code(), s.Message())
}

// Wrap encrypts. The protocol binds nothing, so the binding goes inside.
func (p *plugin) Wrap(ctx context.Context, plain, binding []byte) ([]byte, error) {
	ctx, done := context.WithTimeout(ctx, pluginTimeout)
	defer done()
	bound := append(binary.BigEndian.AppendUint32(nil, uint32(len(binding))), binding...)
	answer, err := p.client.Encrypt(ctx, &kms.EncryptRequest{Plaintext: append(bound, plain...), Uid: uuid.NewString()})
	if err != nil {
		return nil, p.fault("asked to encrypt", err)
	}
	if len(answer.GetCiphertext()) == 0 || answer.GetKeyId() == "" {
		return nil, fmt.Errorf("the KMS plugin at %s answered no ciphertext or no key", p.socket)
	}
	return proto.Marshal(answer)
}

func (p *plugin) Unwrap(ctx context.Context, wrapped, binding []byte) ([]byte, bool, error) {
	ctx, done := context.WithTimeout(ctx, pluginTimeout)
	defer done()
	stored := new(kms.EncryptResponse)
	if err := proto.Unmarshal(wrapped, stored); err != nil || len(stored.GetCiphertext()) == 0 || stored.GetKeyId() == "" {
		return nil, false, seal.ErrOtherKey // no plugin's answer
	}
	answer, err := p.client.Decrypt(ctx, &kms.DecryptRequest{
		Ciphertext: stored.GetCiphertext(), KeyId: stored.GetKeyId(), Annotations: stored.GetAnnotations(), Uid: uuid.NewString(),
	})
	if err != nil {
		switch status.Code(err) {
		case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition:
			return nil, false, fmt.Errorf("%w (%w)", seal.ErrOtherKey, p.fault("asked to decrypt", err))
		}
		return nil, false, p.fault("asked to decrypt", err)
	}
	bound := append(binary.BigEndian.AppendUint32(nil, uint32(len(binding))), binding...)
	plain, ok := bytes.CutPrefix(answer.GetPlaintext(), bound)
	if !ok {
		return nil, false, seal.ErrOtherKey
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return plain, stored.GetKeyId() == p.keyID, nil
}
