package awscost

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func prices(t *testing.T) Prices {
	t.Helper()
	p, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPrices_AreDatedAndSayWhereFrom(t *testing.T) {
	t.Parallel()
	p := prices(t)
	if !regexp.MustCompile(`^20\d\d-\d\d-\d\d$`).MatchString(p.Date) || p.Region == "" {
		t.Errorf("date %q, region %q", p.Date, p.Region)
	}
	for name, price := range p.Prices {
		if price.USD <= 0 || price.Per == "" || price.Source == "" {
			t.Errorf("%s: %+v", name, price)
		}
	}
}

// The survey's formula, with its figures: W=10 s, door 0.125 GB, worker 0.25 GB, one chunk, 20 ECPU are about $55 with one
// call at a time and about $25 with ten. Ours has two requests more (hold, and hold again after 10 s) and the reply's way out.
func TestMillion_IsTheSurveysFormula(t *testing.T) {
	t.Parallel()
	p := prices(t)
	for _, tt := range []struct {
		n    float64
		want float64
	}{
		{1, 3.5 + (0.2 + 13.3334*10*0.125) + (0.4*3 + 0.1) + (0.2 + 13.3334*10*0.25) + 0.0023*20 + 0.5},
		{10, 3.5 + (0.2 + 13.3334*10*0.125) + (0.4*3 + 0.1) + (0.02 + 13.3334*10*0.25/10) + 0.0023*20 + 0.5},
	} {
		u := Usual()
		u.DoorMB, u.Batch, u.Parallel, u.ReplyKB, u.ECPU, u.LogKB = 128, tt.n, tt.n, 0, 20, 1
		if got := Total(p.Million(u.Counts())) - 2*0.4; math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("%g at once: $%.4f, the formula gives $%.4f", tt.n, got, tt.want)
		}
	}
}

func TestReport_IsTheReviewedOne(t *testing.T) {
	t.Parallel()
	p := prices(t)
	var got bytes.Buffer
	for _, env := range []string{"dev", "prod"} {
		cfg, err := config.Load(filepath.Join("..", "..", "..", "infra", "cdk", "environments", env+".yaml"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Report(&got, cfg); err != nil {
			t.Fatal(err)
		}
	}
	golden := filepath.Join("testdata", "report.golden")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("(-reviewed +now); -update rewrites it:\n%s", diff)
	}
}

// A VPC's way out is most of an idle environment's bill.
func TestMonth_TellsWhatAVPCCosts(t *testing.T) {
	t.Parallel()
	cfg := config.Default(config.KindAWS)
	idle := func() float64 { s := Of(cfg); return Total(prices(t).Month(s, s.Idle())) }
	plain := idle()
	cfg.Valkey.Network, cfg.Deploy.NAT = "vpc", config.NATEach
	if got, want := idle()-plain, 2*4*7.30+2*32.85; math.Abs(got-want) > 1e-6 {
		t.Errorf("two zones with NAT cost $%.2f a month more, want $%.2f", got, want)
	}
}
