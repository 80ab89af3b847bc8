package front

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateLife is how long a throw-away certificate is good for.
const certificateLife = 7 * 24 * time.Hour

// NewCertificate makes a certificate for 127.0.0.1 and localhost, signed by an authority of its own whose certificate it
// writes to ca.pem in dir: clients that want https (Bedrock SDKs send bearer tokens over nothing else) are told to trust
// that file. Both keys stay in memory and the authority's is dropped, so nothing else can ever be signed with it; it is
// limited to these names besides, should someone add the file to a system's trust store.
func NewCertificate(dir string) (certificate tls.Certificate, caPEMPath string, err error) {
	now := time.Now()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("front: make authority's key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("front: make key: %w", err)
	}
	loopback := net.IPv4(127, 0, 0, 1).To4()
	ca := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "llmq local throw-away CA"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{"localhost"},
		PermittedIPRanges: []*net.IPNet{{IP: loopback, Mask: net.CIDRMask(32, 32)}},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("front: sign authority: %w", err)
	}
	leaf := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("front: sign certificate: %w", err)
	}
	path := filepath.Join(dir, "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return tls.Certificate{}, "", fmt.Errorf("front: write authority: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, path, nil
}

func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails: it ends the program instead
	return new(big.Int).SetBytes(b)
}
