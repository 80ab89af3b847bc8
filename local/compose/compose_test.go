// Package compose holds the test of local/docker-compose.yml. It is a module of its own so that the library that parses
// the file, with its dozen dependencies, is none of llmq's.
package compose

import (
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

func load(t *testing.T) *types.Project {
	t.Helper()
	opts, err := cli.NewProjectOptions([]string{"../docker-compose.yml"}, cli.WithEnvFiles("../compose.env"), cli.WithDotEnv, cli.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	p, err := opts.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// G2: all parts are there, by versions that stay what they are, and tell when they are ready.
func TestServices_ArePinnedAndTellTheirHealth(t *testing.T) {
	t.Parallel()
	p := load(t)
	pinned := regexp.MustCompile(`^[a-z0-9./-]+:v?[0-9]+\.[0-9]+\.[0-9]+$`)
	for _, name := range []string{"valkey", "elasticmq", "s3", "fakellm", "otel", "prometheus"} {
		s, ok := p.Services[name]
		if !ok {
			t.Errorf("%s is missing", name)
			continue
		}
		if s.Build == nil && !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q is not pinned", name, s.Image)
		}
		// The collector's image holds nothing that could ask.
		if (s.HealthCheck == nil || len(s.HealthCheck.Test) == 0) && name != "otel" {
			t.Errorf("%s has no health check", name)
		}
		if optional := len(s.Profiles) > 0; optional != (name == "otel" || name == "prometheus") {
			t.Errorf("%s: profiles %v", name, s.Profiles)
		}
	}
	if n := len(p.Services); n != 6 {
		t.Errorf("%d services", n)
	}
}

// Nobody but this machine reaches a part, and none has rights that it doesn't need.
func TestServices_AreReachedFromThisMachineOnly(t *testing.T) {
	t.Parallel()
	p := load(t)
	for name, s := range p.Services {
		if len(s.Ports) == 0 {
			t.Errorf("%s has no port", name)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is on %q", name, port.Published, port.HostIP)
			}
		}
		if s.Privileged || s.NetworkMode != "" || s.Pid != "" || len(s.CapAdd) > 0 {
			t.Errorf("%s has rights of its host", name)
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind || !v.ReadOnly {
				t.Errorf("%s: %s is not a file that is only read", name, v.Source)
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// sam local is told --docker-network llmq.
func TestNetwork_HasTheNameThatSAMIsTold(t *testing.T) {
	t.Parallel()
	p := load(t)
	if n := p.Networks["default"].Name; n != "llmq" || len(p.Networks) != 1 {
		t.Errorf("networks %+v", p.Networks)
	}
	for name, s := range p.Services {
		if _, ok := s.Networks["default"]; !ok || len(s.Networks) != 1 {
			t.Errorf("%s is in the networks %v", name, s.Networks)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each address that programs and functions are given is a part's.
func TestAddresses_LeadToAPart(t *testing.T) {
	t.Parallel()
	p := load(t)
	published := map[string]bool{} // on this machine
	inside := map[string]bool{}    // in the network
	for name, s := range p.Services {
		for _, port := range s.Ports {
			published[net.JoinHostPort(port.HostIP, port.Published)] = true
			inside[net.JoinHostPort(name, strconv.Itoa(int(port.Target)))] = true
		}
	}
	found := 0
	for _, address := range regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindAllString(read(t, "../llmq.yaml"), -1) {
		found++
		if !published[address] {
			t.Errorf("llmq.yaml names %s, where no part is", address)
		}
	}
	template := read(t, "../sam-template.yaml")
	for _, m := range regexp.MustCompile(`http://([a-z0-9]+:[0-9]+)`).FindAllStringSubmatch(template, -1) {
		found++
		if !inside[m[1]] {
			t.Errorf("sam-template.yaml names %s, which is no part", m[1])
		}
	}
	if !strings.Contains(template, "LLMQ_REDIS_HOST: valkey\n") || !inside["valkey:6379"] {
		t.Error("the template's state store is not the part valkey")
	}
	if !strings.Contains(read(t, "../../Makefile"), "s#//127.0.0.1:8090#//fakellm:8090#") || !inside["fakellm:8090"] {
		t.Error("make sam leads to no provider")
	}
	if found < 8 {
		t.Errorf("%d addresses were found", found)
	}
}

// The buckets that the configuration names are made, and every variable has a value.
func TestConfiguration_IsWhole(t *testing.T) {
	t.Parallel()
	p := load(t)
	text := read(t, "../llmq.yaml")
	for _, m := range regexp.MustCompile(`(?:bucket|state_bucket): ([a-z-]+)`).FindAllStringSubmatch(text, -1) {
		if script := strings.Join(p.Services["s3"].Entrypoint, " "); !strings.Contains(script, "/data/"+m[1]) {
			t.Errorf("no bucket %s is made", m[1])
		}
	}
	for name, s := range p.Services {
		for k, v := range s.Environment {
			if v == nil || *v == "" {
				t.Errorf("%s: %s has no value", name, k)
			}
		}
		for _, arg := range s.Command {
			if strings.HasSuffix(arg, "=") {
				t.Errorf("%s: %s has no value", name, arg)
			}
		}
	}
}
