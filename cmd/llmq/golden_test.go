package main

import (
	"strings"
	"testing"
)

const body = `{"model":"chat-a","messages":[{"role":"user","content":"hello"}]}`

// E5, B12: every verb as a program and as people at 80 and 120 columns see it, errors included, on what the real admin API
// answered.
func TestVerbs_GoldenAsJSONAndAsTables(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		answers []string
		args    string
	}{
		{"status", []string{"status"}, "status"},
		{"status-store-down", []string{"status-store-down"}, "status"},
		{"status-denied", []string{"denied"}, "status"},
		{"status-usage", nil, "status --watch --every 10ms"},
		{"metrics", []string{"metrics"}, "metrics"},
		{"cost", nil, "cost --counts testdata/counts.json"},
		{"cost-timed", nil, "cost --counts testdata/counts.json --call-seconds 10"},
		{"cost-short", nil, "cost --counts testdata/counts-short.json"},
		{"cost-no-file", nil, "cost --counts testdata/none.json"},
		{"cost-no-counts", nil, "cost --counts testdata/body.json"},
		{"cost-deployment-reset", nil, "cost --env prod --reset"},
		{"cost-day-local", nil, "cost --day 2026-11-29"},
		{"cost-usage", nil, "cost --counts - --reset"},
		{"doctor", []string{"doctor", "health"}, "doctor"},
		{"doctor-ill", []string{"doctor-ill", "health"}, "doctor --new-store"},
		{"queues", []string{"queues"}, "queues"},
		{"queues-list", []string{"queues"}, "queues list"},
		{"queues-misspelt", nil, "queues redrve llm-chat-a"},
		{"dead", []string{"dead"}, "queues dead llm-chat-a"},
		{"dead-more", []string{"dead-more"}, "queues dead --model chat-a --lane bg --limit 1"},
		{"dead-none", []string{"dead-none"}, "queues dead llm-emb-a"},
		{"redrive-dry", []string{"redrive-dry"}, "queues redrive llm-chat-a --dry-run"},
		{"redrive", []string{"redrive"}, "queues redrive llm-chat-a"},
		{"redrive-pages", []string{"redrive-page-1", "redrive-page-2"}, "queues redrive --model chat-a --lane bulk --max-rate 1"},
		{"redrive-bad-rate", []string{"redrive-bad-rate"}, "queues redrive --model chat-a --lane bg --max-rate 900"},
		{"redrive-no-queue", nil, "queues redrive --model chat-a"},
		{"redrive-both", nil, "queues redrive llm-chat-a --lane bg"},
		{"create", []string{"create"}, "queues create"},
		{"create-one", []string{"create-one"}, "queues create llm-chat-a --visibility-secs 60 --max-receives 10 --retention-secs 345600"},
		{"create-bad", []string{"create-bad"}, "queues create --model chat-a --lane bg --max-receives 2000"},
		{"create-aws", []string{"create-aws"}, "queues create"},
		{"create-lane", nil, "queues create --lane bg"},
		{"pause", []string{"pause"}, "queues pause --model emb-a --lane bulk"},
		{"pause-unknown", []string{"pause-unknown"}, "queues pause llm-emb"},
		{"resume", []string{"resume"}, "queues resume llm-emb-a-rt"},
		{"purge", []string{"purge"}, "queues purge llm-emb-a --confirm llm-emb-a"},
		{"purge-again", []string{"purge-again"}, "queues purge llm-emb-a --confirm llm-emb-a"},
		{"purge-unknown", []string{"purge-unknown"}, "queues purge llm-emb --confirm llm-emb"},
		{"purge-unconfirmed", nil, "queues purge llm-emb-a"},
		{"keys", []string{"keys"}, "keys"},
		{"keys-show", []string{"keys-show"}, "keys show ppwtn5v2ym"},
		{"keys-show-unknown", []string{"keys-show-unknown"}, "keys show nope"},
		{"keys-create", []string{"keys-create"}, "keys create --tenant acme --name reports --models chat-a --lanes rt,bg --calls-per-minute 60 --expires-in-days 30"},
		{"keys-create-quiet", []string{"keys-create"}, "keys create --tenant acme --name reports --models chat-a --lanes rt,bg --calls-per-minute 60 --expires-in-days 30 -q"},
		{"keys-create-bad", []string{"keys-create-bad"}, "keys create --tenant acme --models chat-b"},
		{"keys-create-usage", nil, "keys create --tenant acme"},
		{"keys-rotate", []string{"keys-rotate"}, "keys rotate ppwtn5v2ym --overlap-hours 48"},
		{"keys-revoke", []string{"keys-revoke"}, "keys revoke ppwtn5v2ym"},
		{"keys-revoke-usage", nil, "keys revoke"},
		{"settings", []string{"settings"}, "settings"},
		{"settings-none", []string{"settings-none"}, "settings"},
		{"settings-model", []string{"settings-model"}, "settings --model chat-a"},
		{"settings-provider", []string{"settings-provider"}, "settings get --provider fake-openai"},
		{"settings-unknown", []string{"settings-unknown"}, "settings --model nope"},
		{"settings-both", nil, "settings --model chat-a --provider fake-openai"},
		{"settings-set", []string{"settings-set"}, "settings set --model chat-a max_concurrency=5 timeout_secs.rt=45"},
		{"settings-set-misspelt", []string{"settings-set-misspelt"}, "settings set --model chat-a max_concurency=5"},
		{"settings-set-revision", []string{"settings-set-revision"}, "settings set --model chat-a rpm=60 --revision 0"},
		{"settings-set-usage", nil, "settings set --model chat-a max_concurrency"},
		{"settings-set-what", nil, "settings set max_concurrency=5"},
		{"settings-unset", []string{"settings-unset"}, "settings unset --model chat-a timeout_secs.rt"},
		{"settings-unset-unknown", []string{"settings-unset-unknown"}, "settings unset --model chat-a rpm"},
		{"settings-audit", []string{"settings-audit"}, "settings audit"},
		{"settings-reset", []string{"settings-reset"}, "settings reset"},
		{"settings-reset-again", []string{"settings-reset-again"}, "settings reset"},
		{"routing", []string{"routing"}, "routing"},
		{"routing-set", []string{"routing-set"}, "routing set --model chat-a --lane rt --pct 10"},
		{"routing-set-lane", []string{"routing-set-lane"}, "routing set --model chat-a --lane bulk --mode queue"},
		{"routing-set-usage", nil, "routing set --model chat-a"},
		{"routing-kill", []string{"routing-kill"}, "routing kill on"},
		{"routing-kill-usage", nil, "routing kill maybe"},
		{"routing-reset", []string{"routing-reset"}, "routing reset"},
		{"limiter", []string{"limiter"}, "limiter"},
		{"limiter-unknown", []string{"limiter-unknown"}, "limiter show --model chat-x"},
		{"limiter-reset", []string{"limiter-reset"}, "limiter reset --model chat-a"},
		{"limiter-reset-usage", nil, "limiter reset"},
		{"breaker", []string{"breaker"}, "breaker --model chat-a"},
		{"breaker-reset", []string{"breaker-reset"}, "breaker reset --model chat-a --target main"},
		{"breaker-reset-unknown", []string{"breaker-reset-unknown"}, "breaker reset --model chat-a --target second"},
		{"fallback", []string{"fallback"}, "fallback"},
		{"fallback-set", []string{"fallback-set"}, "fallback set --model chat-a --chain emb-a --require-headroom emb-a"},
		{"fallback-set-wire", []string{"fallback-set-wire"}, "fallback set --model chat-a --chain conv-a --require-headroom conv-a"},
		{"fallback-set-bad", []string{"fallback-set-bad"}, "fallback set --model chat-a --chain chat-x"},
		{"fallback-set-none", []string{"fallback-set-none"}, "fallback set --model chat-a --chain="},
		{"fallback-set-file", []string{"fallback-set-file"}, "fallback set --file testdata/chains.json"},
		{"fallback-replace", []string{"fallback-replace"}, "fallback set -f testdata/chains.json --replace"},
		{"fallback-replace-alone", nil, "fallback set --model chat-a --chain emb-a --replace"},
		{"fallback-set-file-bad", nil, "fallback set --file testdata/body.json"},
		{"fallback-set-file-two", nil, "fallback set --file testdata/two.json"},
		{"fallback-set-file-twice", nil, "fallback set --file testdata/twice.json"},
		{"fallback-set-usage", nil, "fallback set --model chat-a --chain conv-a --require-headroom chat-b"},
		{"fallback-test", []string{"fallback-test"}, "fallback test --model chat-a"},
		{"fallback-test-unknown", []string{"fallback-test-unknown"}, "fallback test --model chat-x"},
		{"fallback-reset", []string{"fallback-reset"}, "fallback reset --model chat-a"},
		{"older-deployment", []string{"unknown-path"}, "routing"},
		{"call-submit", []string{"submit"}, "call hello --op embed --model emb-a --lane bg --id report-7 --submit"},
		{"call-submit-quiet", []string{"submit"}, "call hello --op embed --model emb-a --lane bg --id report-7 --submit -q"},
		{"call-quiet", nil, "call hello --model chat-a --quiet"},
		{"call-responses", []string{"call-responses"}, "call hello --op responses --model chat-a"},
		{"call-responses-stream", []string{"call-responses-stream"}, "call hello --op responses --model chat-a --stream"},
		{"call-invoke", []string{"call-invoke"}, "call --op invoke --model conv-a --file testdata/invoke.json"},
		{"call-invoke-prompt", nil, "call hello --op invoke --model conv-a"},
		{"call-wrong-wire", []string{"call-wrong-wire"}, "call hello --model conv-a"},
		{"call-scope", []string{"call-scope"}, "call hello --model chat-a"},
		{"call-submit-stream", nil, "call hello --model chat-a --submit --stream"},
		{"request-show", []string{"request-show-done"}, "request show report-7 --wait 20"},
		{"request-show-queued", []string{"request-show-queued"}, "request show report-8"},
		{"request-show-cancelled", []string{"request-show-cancelled"}, "request show report-8"},
		{"request-show-unknown", []string{"request-show-unknown"}, "request show nobody"},
		{"request-show-usage", nil, "request show"},
		{"request-cancel", []string{"request-cancel"}, "request cancel report-8"},
		{"request-cancel-late", []string{"request-cancel-late"}, "request cancel report-7"},
		{"request-result", []string{"request-result"}, "request result report-9"},
		{"request-result-early", []string{"request-result-early"}, "request result report-8"},
		{"request-result-cancelled", []string{"request-result-cancelled"}, "request result report-8"},
		{"job-send", []string{"job-send"}, "job send words --queue text --payload-file testdata/body.json --id report-11 --timeout-secs 600"},
		{"job-send-wait", []string{"job-send", "job-done"}, "job send words --queue text --payload-file - --id report-11 --timeout-secs 600 --wait 30"},
		{"job-send-dead", []string{"job-send", "job-dead-waited"}, "job send words --queue text --payload-file testdata/body.json --id report-11 --timeout-secs 600 --wait 30"},
		{"job-send-unknown", []string{"job-unknown-queue"}, "job send words --queue test --payload-file testdata/body.json"},
		{"job-send-no-queue", nil, "job send words --payload-file testdata/body.json"},
		{"job-send-no-payload", nil, "job send words --queue text"},
		{"job-send-no-file", nil, "job send words --queue text --payload-file testdata/none.json"},
		{"job-send-own-names", []string{"job-send-own-names"}, "job send words --queue text --payload-file testdata/payload.json --id report-11 --timeout-secs 600"},
		{"job-send-no-object", nil, "job send words --queue text --payload-file testdata/null.json"},
		{"job-send-long-wait", nil, "job send words --queue text --payload-file testdata/body.json --wait 291"},
		{"job-send-usage", nil, "job send --queue text"},
		{"job-status", []string{"job-dead"}, "job status report-11"},
		{"job-cancel", []string{"job-cancel"}, "job cancel report-11"},
		{"job-result", []string{"job-result"}, "job result report-11"},
		{"call-chat", []string{"call-chat"}, "call hello --model chat-a"},
		{"call-stream", []string{"call-stream"}, "call hello --model chat-a --stream"},
		{"call-converse", []string{"call-converse"}, "call hello --op converse --model conv-a --max-tokens 50"},
		{"call-embed", []string{"call-embed"}, "call hello --op embed --model emb-a"},
		{"call-file", []string{"call-chat"}, "call --file testdata/body.json"},
		{"call-stdin", []string{"call-chat"}, "call --file -"},
		{"call-unknown", []string{"call-unknown"}, "call hello --model chat-x"},
		{"call-converse-unknown", []string{"call-converse-unknown"}, "call hello --op converse --model conv-x"},
		{"call-which-model", []string{"models"}, "call hello"},
		{"call-nothing", nil, "call --model chat-a"},
		{"call-both", nil, "call hello --file testdata/body.json"},
		{"call-other-model", nil, "call --file testdata/body.json --model chat-b"},
		{"call-no-stream", nil, "call --file testdata/body.json --stream"},
		{"call-no-file", nil, "call --file testdata/none.json"},
		{"call-op", nil, "call hello --op chant"},
		{"unknown-flag", nil, "status --wide"},
		{"unknown-flag-far", nil, "queues dead --reasons x"},
		{"unknown-short", nil, "call -z"},
		{"flag-without-value", nil, "status --every"},
		{"flag-of-wrong-form", nil, "queues dead llm-chat-a --limit many"},
		{"flag-missing", nil, "fallback set --chain chat-a"},
		{"flags-none-of", nil, "fallback set --model chat-a"},
		{"flags-both", nil, "status --env prod --admin-url http://127.0.0.1:1"},
		{"unknown-command", nil, "stauts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var text strings.Builder
			var last told
			for _, as := range []struct {
				title string
				width int
			}{{"$ llmq " + tt.args, 80}, {"at 120 columns", 120}, {"| cat", 0}} {
				url := replay(t, tt.answers...)
				env := []string{"LLMQ_ADMIN_URL=" + url, "LLMQ_ADMIN_KEY=" + testKey, "OPENAI_BASE_URL=" + url + "/v1", "OPENAI_API_KEY=" + testKey, "NO_COLOR=1"}
				got := invoke(t, at{width: as.width, env: env, in: body}, strings.Fields(tt.args)...)
				if got != last { // what is the same everywhere is told once
					text.WriteString(got.transcript(as.title))
				}
				last = got
			}
			golden(t, tt.name, text.String())
		})
	}
}

// Every command has a help with an example.
func TestHelp_Golden(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	a := &app{}
	var walk func(path []string)
	walk = func(path []string) {
		got := invoke(t, at{width: 80}, append(path, "--help")...)
		text.WriteString(got.transcript("$ llmq " + strings.Join(append(path, "--help"), " ")))
		if got.code != 0 || !strings.Contains(got.out, "Example") && path[0] != "completion" && path[0] != "help" {
			t.Errorf("%v: code %d, or no example", path, got.code)
		}
		c, _, err := a.root().Find(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, sub := range c.Commands() {
			walk(append(path[:len(path):len(path)], sub.Name()))
		}
	}
	for _, c := range a.root().Commands() {
		walk([]string{c.Name()})
	}
	text.WriteString(invoke(t, at{width: 80}).transcript("$ llmq"))
	golden(t, "help", text.String())
}

// Colour is for terminals that take it; a pipe never sees an escape.
func TestColour_OnTerminalsOnly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		width int
		env   string
		want  bool
	}{
		{"terminal", 80, "TERM=xterm", true},
		{"NO_COLOR", 80, "NO_COLOR=1", false},
		{"dumb terminal", 80, "TERM=dumb", false},
		{"pipe", 0, "TERM=xterm", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := []string{"LLMQ_ADMIN_URL=" + replay(t, "status"), "LLMQ_ADMIN_KEY=" + testKey, tt.env}
			got := invoke(t, at{width: tt.width, env: env}, "status")
			if strings.Contains(got.out, "\x1b[") != tt.want || strings.Contains(got.err, "\x1b") {
				t.Errorf("out = %q", got.out)
			}
		})
	}
}
