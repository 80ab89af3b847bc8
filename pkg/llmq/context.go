package llmq

import "context"

type contextKey int

const (
	userKey contextKey = iota
	sessionKey
)

// WithUser says whose calls those made under the context are: the id of the caller's end user, at most
// [MaxLabelBytes]. What a call itself says goes before it. Only a keyed hash of it is kept (FEATURES E14).
func WithUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, userKey, user)
}

// UserFrom is what [WithUser] said; "" is nothing.
func UserFrom(ctx context.Context) string { return label(ctx, userKey) }

// WithSession says which session the calls made under the context belong to, by an id as that of [WithUser].
func WithSession(ctx context.Context, session string) context.Context {
	return context.WithValue(ctx, sessionKey, session)
}

// SessionFrom is what [WithSession] said; "" is nothing.
func SessionFrom(ctx context.Context) string { return label(ctx, sessionKey) }

func label(ctx context.Context, k contextKey) string {
	s, _ := ctx.Value(k).(string) // no other type is ever put there
	return s
}
