// Package valkey dials the state store: cluster mode or not, TLS or not, with a
// password or an IAM token. Its time-outs are short, since a state store that hangs
// must not hang its callers.
package valkey

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options says how to reach the store.
type Options struct {
	Address        string // host:port
	Cluster        bool
	TLS            bool
	Username       string
	Password       string        // "" with IAM
	IAM            *IAM          // nil: Password
	CommandTimeout time.Duration // one command, reading or writing
	DialTimeout    time.Duration // one connection
	PoolSize       int           // connections at most; 0 is 4
	Trust          *Trust        // of the client's connections; nil: nobody loses it
}

// IAM signs a process in to ElastiCache with the role that it runs under.
type IAM struct {
	CacheName   string // of the serverless cache, lower case
	Region      string
	Credentials aws.CredentialsProvider
}

const (
	// idleTime and lifeTime keep below what a freeze, a load balancer or ElastiCache's own
	// 12 h limit on a signed-in connection would cut.
	idleTime = 4 * time.Minute
	lifeTime = 11 * time.Hour
	poolSize = 4
	// retries is one: a pooled connection may be dead after a thaw, and every script bears
	// being sent twice. The repeat is on a fresh one: see conn.
	retries = 1
)

// Dial makes a client. It connects on first use.
func Dial(o Options) (redis.UniversalClient, error) {
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, fmt.Errorf("valkey address %q: %w", o.Address, err)
	}
	if o.PoolSize == 0 {
		o.PoolSize = poolSize
	}
	opts := &redis.UniversalOptions{
		Addrs: []string{o.Address}, IsClusterMode: o.Cluster, Username: o.Username, Password: o.Password,
		ReadTimeout: o.CommandTimeout, WriteTimeout: o.CommandTimeout, DialTimeout: o.DialTimeout, ContextTimeoutEnabled: true,
		PoolSize: o.PoolSize, PipelinePoolSize: -1, MaxRetries: retries, MaxRedirects: 3,
		ConnMaxIdleTime: idleTime, ConnMaxLifetime: lifeTime, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if o.TLS {
		opts.TLSConfig = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	}
	opts.Dialer = dialer(o.DialTimeout, opts.TLSConfig, cmp.Or(o.Trust, &Trust{}))
	if o.IAM != nil {
		opts.CredentialsProviderContext = func(ctx context.Context) (string, string, error) {
			// Signed for every dial: a token dies with the role credentials that signed it, so a
			// kept one would fail just when they roll over. Signing is local and cheap.
			token, err := o.IAM.token(ctx, o.Username, time.Now())
			return o.Username, token, err
		}
	}
	return redis.NewUniversalClient(opts), nil
}
