package s3

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/providers/s3/installation"
)

// runMain makes the test binary be the provider that answers to the name that it
// holds, so that what is tried is its real process.
const runMain = "RADIAL_TEST_RUN_PROVIDER_S3"

func TestMain(m *testing.M) {
	if name := os.Getenv(runMain); name != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := command(name, os.LookupEnv).Run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	code := m.Run()
	if err := clustertest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	oneStore.stop()
	os.Exit(code)
}

const (
	testInstallation = "under-test"
	testPrefix       = "acme"
	testRegion       = "cellar-1"
)

// store is a real object store: versitygw's gateway and IAM service, over TLS.
type store struct {
	dir, sockets   string
	s3URL, iamURL  string
	ca             string
	root           aws.Credentials
	processes      []*exec.Cmd
	transport      http.RoundTripper
	key            string // file with the provider's own key
	providerSecret string
}

// startStore starts one. without versioning, it is one that keeps no versions.
func startStore(dir string, versioning bool) (*store, error) {
	program := filepath.Join(binaries(), "versitygw")
	if _, err := os.Stat(program); err != nil {
		return nil, errNoStore
	}
	s := &store{dir: dir, ca: filepath.Join(dir, "ca.crt"), root: aws.Credentials{AccessKeyID: "root-of-the-store", SecretAccessKey: "Root9" + rand.Text()}}
	if err := s.certificate(); err != nil {
		return nil, err
	}
	for _, d := range []string{"data", "versions", "iam"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	// A socket's path is short, wherever the directory is.
	var err error
	if s.sockets, err = os.MkdirTemp("", "s3-"); err != nil {
		return nil, err
	}
	socket := filepath.Join(s.sockets, "iam.sock")
	iamPort, s3Port := freePort(), freePort()
	common := []string{"--region", testRegion, "--cert", filepath.Join(dir, "tls.crt"), "--key", filepath.Join(dir, "tls.key"), "--health", "/healthz", "--quiet"}
	iamArgs := append(append([]string{}, common...), "-p", iamPort, "iam", "--dir", filepath.Join(dir, "iam"), "--private-ports", socket)
	s3Args := append(append([]string{}, common...), "-p", s3Port, "--iam-standalone-endpoint", socket, "posix", "--sidecar", filepath.Join(dir, "side"))
	if err := os.MkdirAll(filepath.Join(dir, "side"), 0o755); err != nil {
		return nil, err
	}
	if versioning {
		s3Args = append(s3Args, "--versioning-dir", filepath.Join(dir, "versions"))
	}
	s3Args = append(s3Args, filepath.Join(dir, "data"))
	s.s3URL, s.iamURL = "https://"+s3Port, "https://"+iamPort
	for i, args := range [][]string{iamArgs, s3Args} {
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.root.AccessKeyID, "ROOT_SECRET_KEY="+s.root.SecretAccessKey)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		log, err := os.Create(filepath.Join(dir, fmt.Sprintf("log%d", i)))
		if err != nil {
			return nil, err
		}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		s.processes = append(s.processes, cmd)
		if err := s.up([]string{s.iamURL, s.s3URL}[i], log.Name()); err != nil {
			s.stop()
			return nil, err
		}
	}
	return s, s.ownUser()
}

var errNoStore = fmt.Errorf("versitygw is not built: run `make versitygw`, or set RADIAL_BIN to a directory that holds it")

// binaries is where the repository's programs are.
func binaries() string {
	if dir := os.Getenv("RADIAL_BIN"); dir != "" {
		return dir
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "bin")
}

func freePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// up waits until the server answers: that is the only sign it gives.
func (s *store) up(url, log string) error {
	c := &http.Client{Transport: s.transport}
	end := time.Now().Add(60 * time.Second)
	for {
		r, err := c.Get(url + "/healthz")
		if err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		if time.Now().After(end) {
			said, _ := os.ReadFile(log)
			return fmt.Errorf("the object store does not come up: %v\n%s", err, said)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *store) stop() {
	if s == nil {
		return
	}
	for _, p := range s.processes {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	_ = os.RemoveAll(s.sockets)
	_ = os.RemoveAll(s.dir)
}

func (s *store) certificate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	s.transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: false, MaxIdleConnsPerHost: 16}
	for name, content := range map[string][]byte{s.ca: cert, filepath.Join(s.dir, "tls.crt"): cert,
		filepath.Join(s.dir, "tls.key"): pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) config(key aws.Credentials) aws.Config {
	return aws.Config{Region: testRegion, HTTPClient: &http.Client{Transport: &wholeBodies{s.transport}}, Retryer: func() aws.Retryer { return aws.NopRetryer{} },
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return key, nil })}
}

// S3 and IAM reach the store under a key, without a line of the provider's.
func (s *store) S3(key aws.Credentials) *s3.Client {
	return s3.NewFromConfig(s.config(key), func(o *s3.Options) { o.BaseEndpoint, o.UsePathStyle = &s.s3URL, true })
}

func (s *store) IAM(key aws.Credentials) *iam.Client {
	return iam.NewFromConfig(s.config(key), func(o *iam.Options) { o.BaseEndpoint, o.Region = &s.iamURL, "us-east-1" })
}

// ownUser makes the provider's own user with the rights that are shipped, and no
// more.
func (s *store) ownUser() error {
	ctx := context.Background()
	api := s.IAM(s.root)
	user := aws.String("radial-provider")
	var compact any
	if err := json.Unmarshal([]byte(installation.Policy), &compact); err != nil {
		return err
	}
	raw, err := json.Marshal(compact)
	if err != nil {
		return err
	}
	document := strings.NewReplacer("INSTALLATION", testInstallation, "PREFIX", testPrefix).Replace(string(raw))
	if _, err := api.CreateUser(ctx, &iam.CreateUserInput{UserName: user}); err != nil {
		return err
	}
	if _, err := api.PutUserPolicy(ctx, &iam.PutUserPolicyInput{UserName: user, PolicyName: aws.String("provider"), PolicyDocument: &document}); err != nil {
		return err
	}
	out, err := api.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: user})
	if err != nil {
		return err
	}
	s.key, s.providerSecret = filepath.Join(s.dir, "credentials"), *out.AccessKey.SecretAccessKey
	return os.WriteFile(s.key, fmt.Appendf(nil, "[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", *out.AccessKey.AccessKeyId, *out.AccessKey.SecretAccessKey), 0o600)
}

var (
	oneStore  *store
	storeOnce sync.Once
	storeErr  error
)

// theStore is the package's, with versions.
func theStore(t *testing.T) *store {
	t.Helper()
	storeOnce.Do(func() {
		dir, err := os.MkdirTemp("", "s3-store-")
		if err != nil {
			storeErr = err
			return
		}
		oneStore, storeErr = startStore(dir, true)
	})
	s := oneStore
	skipWithout(t, storeErr)
	return s
}

func skipWithout(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == errNoStore && os.Getenv("RADIAL_REQUIRE_TOOLS") != "1":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}

// cloud is the provider's side of the store, and change what is else to be.
func (s *store) cloud(t *testing.T, change func(*Config)) *Cloud {
	t.Helper()
	c := Config{Endpoint: s.s3URL, IAMEndpoint: s.iamURL, Region: testRegion, CredentialsFile: s.key, CAFile: s.ca, Settle: 300 * time.Millisecond}
	if change != nil {
		change(&c)
	}
	cloud, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return cloud
}

// reaches says whether a key opens a bucket for reading, writing and removing;
// the error is why not.
func (s *store) reaches(ctx context.Context, access, secret, bucket string) error {
	c := s.S3(aws.Credentials{AccessKeyID: access, SecretAccessKey: secret})
	name := aws.String("probe-" + rand.Text())
	if _, err := c.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: name, Body: strings.NewReader("hello")}); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	out, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: name})
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	body, err := io.ReadAll(out.Body)
	if err != nil || string(body) != "hello" {
		return fmt.Errorf("read %q: %w", body, err)
	}
	if _, err := c.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &bucket}); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if _, err := c.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: name}); err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}
