package dev

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/cli/setup"
)

// tokenLifetime is what is asked of the API server; a token is replaced after two thirds of what it granted.
const tokenLifetime = time.Hour

// tokenRetry is the pause after a failed replacement; a third of the lifetime is left for many of them.
const tokenRetry = 15 * time.Second

// identity keeps a kubeconfig for one of Radial's ServiceAccounts good for as long as ctx lives.
type identity struct {
	account    string
	kubeconfig string
	tokenFile  string
	admin      *rest.Config
	report     func(string)
}

func (d Dir) identityOf(account string, admin *rest.Config, report func(string)) *identity {
	return &identity{
		account:    account,
		kubeconfig: d.Identity(account + ".kubeconfig"),
		tokenFile:  d.Identity(account + ".token"),
		admin:      admin,
		report:     report,
	}
}

// start writes kubeconfig and token, and keeps the token fresh in the background.
func (i *identity) start(ctx context.Context) error {
	expires, err := i.renew(ctx)
	if err != nil {
		return err
	}
	if err := setup.WriteKubeconfig(i.kubeconfig, i.admin, i.account, i.tokenFile); err != nil {
		return fmt.Errorf("cannot write %s: %w", i.kubeconfig, err)
	}
	go i.keep(ctx, expires)
	return nil
}

func (i *identity) keep(ctx context.Context, expires time.Time) {
	wait := time.Until(expires) * 2 / 3
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		next, err := i.renew(ctx)
		if err != nil {
			if ctx.Err() == nil {
				i.report(fmt.Sprintf("%v; trying again in %s (the present token ends at %s)", err, tokenRetry, expires.Format(time.TimeOnly)))
			}
			wait = tokenRetry
			continue
		}
		expires = next
		wait = time.Until(expires) * 2 / 3
	}
}

func (i *identity) renew(ctx context.Context) (time.Time, error) {
	token, expires, err := setup.Token(ctx, i.admin, i.account, tokenLifetime)
	if err != nil {
		return time.Time{}, err
	}
	return expires, writeFile(i.tokenFile, []byte(token), 0o600)
}
