// Package beacon lets programs of the same user find a running local cloud. Who runs one lights a beacon: a file with its
// addresses and keys in a folder that nobody else can read or write, gone when it ends. The file is locked for as long as
// its owner lives, so that one that a killed process left is known as dead, whatever has that process's id or port since.
package beacon

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
)

// Cloud is where a local cloud is, and what opens it.
type Cloud struct {
	URL      string `json:"url"` // of the door, http://127.0.0.1:port
	Key      string `json:"key"`
	AdminURL string `json:"admin_url"`
	AdminKey string `json:"admin_key"`
	// CountsURL is where it tells what AWS would bill; "" is nowhere. It asks for no key.
	CountsURL string `json:"counts_url,omitempty"`
}

// folder is the beacons' folder, in the user's runtime folder. What has none (XDG_RUNTIME_DIR) gets one in the temp
// folder, by the user's id.
const folder = "llmq"

// maxBytes bounds a beacon.
const maxBytes = 16 << 10

// check refuses what is no cloud on this machine: a beacon must not send anybody's key or prompt elsewhere.
func (c Cloud) check() error {
	for _, u := range []string{c.URL, c.AdminURL, cmp.Or(c.CountsURL, c.AdminURL)} {
		if _, err := port(u); err != nil {
			return err
		}
	}
	return nil
}

// port is the port of a URL on loopback.
func port(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("address of a local cloud: %w", err)
	}
	addr, err := netip.ParseAddrPort(u.Host)
	if err != nil || !addr.Addr().IsLoopback() || u.Scheme != "http" || u.User != nil {
		return "", fmt.Errorf("%q is no address of a local cloud", raw)
	}
	return u.Port(), nil
}

func decode(text []byte) (Cloud, error) {
	var c Cloud
	if err := json.Unmarshal(text, &c); err != nil {
		return Cloud{}, fmt.Errorf("read a beacon: %w", err)
	}
	return c, c.check()
}
