package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
)

// causeOf names why a call got no answer, in one word of a fixed list. The error's own
// text must not reach a log: net/http quotes what the peer sent, and that may quote the
// prompt or a key.
func causeOf(err error) string {
	op, _ := errors.AsType[*net.OpError](err)
	var timed net.Error
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case is[*net.DNSError](err):
		return "dns"
	case isTLS(err):
		return "tls"
	case op != nil && op.Op == "dial":
		return "dial"
	case errors.As(err, &timed) && timed.Timeout():
		return "timeout"
	case op != nil && (op.Op == "read" || op.Op == "write"):
		return op.Op
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "cut_off"
	default:
		return "other"
	}
}

// notConnected reports whether err came before a connection stood, so that nothing can have been sent.
func notConnected(err error) bool {
	switch causeOf(err) {
	case "dns", "dial", "tls":
		return true
	}
	return false
}

func isTLS(err error) bool {
	return is[*tls.CertificateVerificationError](err) || is[tls.RecordHeaderError](err) || is[tls.AlertError](err) ||
		is[x509.UnknownAuthorityError](err) || is[x509.HostnameError](err) || is[x509.CertificateInvalidError](err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
