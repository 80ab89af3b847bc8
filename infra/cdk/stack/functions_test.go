package stack

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

func TestFunctions_AreThoseOfTheEnvironment(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		var got []string
		for _, f := range tpl.of("AWS::Lambda::Function") {
			got = append(got, f.Properties["FunctionName"].(string))
		}
		slices.Sort(got)
		want := []string{env.name("admin"), env.name("enqueue"), env.name("worker-bg"), env.name("worker-bulk"), env.name("worker-rt")}
		if env.Config.Governor.Enabled {
			want = append(want, env.name("governor"))
			slices.Sort(want)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("functions (-want +got):\n%s", diff)
		}
	})
}

func TestFunctions_RunOnArmUnderARoleAndALogOfTheirOwn(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		roles, logs := map[string]string{}, map[string]string{}
		for _, f := range tpl.of("AWS::Lambda::Function") {
			p := f.Properties
			name := p["FunctionName"].(string)
			got := []any{p["Architectures"], p["Runtime"], p["Handler"]}
			if diff := cmp.Diff([]any{[]any{"arm64"}, "provided.al2023", "bootstrap"}, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			role, group := target(p["Role"]), target(at(p, "LoggingConfig", "LogGroup"))
			if roles[role] != "" || logs[group] != "" {
				t.Errorf("%s shares its role with %q or its log with %q", name, roles[role], logs[group])
			}
			roles[role], logs[group] = name, name
			if tpl.Resources[group].Type != "AWS::Logs::LogGroup" {
				t.Errorf("%s logs to %q", name, group)
			}
		}
	})
}

func TestLogs_AreKeptFor30Days(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		want := 7 // five functions, two APIs
		if env.Config.Governor.Enabled {
			want++
		}
		groups := tpl.of("AWS::Logs::LogGroup")
		if len(groups) != want {
			t.Errorf("%d log groups", len(groups))
		}
		for id, g := range groups {
			if g.Properties["RetentionInDays"] != 30.0 {
				t.Errorf("%s is kept for %v days", id, g.Properties["RetentionInDays"])
			}
		}
	})
}

func TestFunctions_ReserveConcurrencyInProductionOnly(t *testing.T) {
	want := map[string]map[string]any{
		"dev": {"enqueue": nil, "worker-rt": nil, "worker-bg": nil, "worker-bulk": nil, "admin": nil},
		"prod": {
			"enqueue": 200.0, "worker-rt": 100.0, "worker-bg": 100.0, "worker-bulk": 50.0, "admin": nil, "governor": nil,
		},
	}
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		got := map[string]any{}
		for _, f := range tpl.of("AWS::Lambda::Function") {
			part := strings.TrimPrefix(f.Properties["FunctionName"].(string), env.name()+"-")
			got[part] = f.Properties["ReservedConcurrentExecutions"]
		}
		if diff := cmp.Diff(want[env.Config.Env], got); diff != "" {
			t.Errorf("reserved (-want +got):\n%s", diff)
		}
	})
}

// The functions must be able to start on what they are given: the packed file and the
// variables, of which an unknown or missing one refuses the start.
func TestFunctions_StartOnTheirFileAndVariables(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		file, err := os.ReadFile(env.File)
		if err != nil {
			t.Fatal(err)
		}
		users := map[string]string{"enqueue": "door", "admin": "admin", "governor": "gov"}
		for _, f := range tpl.of("AWS::Lambda::Function") {
			name := f.Properties["FunctionName"].(string)
			vars := []string{"LAMBDA_TASK_ROOT=/var/task"}
			for k, v := range at(f.Properties, "Environment", "Variables").(map[string]any) {
				vars = append(vars, k+"="+resolved(v))
			}
			cfg, err := config.Parse("llmq.yaml", file, vars)
			if err != nil {
				t.Errorf("%s can't start: %v", name, err)
				continue
			}
			// SECURITY-DESIGN section 1: a worker holds no pepper, nor does the governor.
			if peppered := strings.HasSuffix(name, "-enqueue") || strings.HasSuffix(name, "-admin"); cfg.KeyPepper.IsZero() == peppered {
				t.Errorf("%s has the pepper %q", name, cfg.KeyPepper.ARN)
			}
			user := env.name("worker")
			if u := users[strings.TrimPrefix(name, env.name()+"-")]; u != "" {
				user = env.name(u)
			}
			got := []string{cfg.Valkey.Address, cfg.Valkey.Username, cfg.Valkey.CacheName, cfg.Storage.Bucket, cfg.Queues.URLBase}
			want := []string{"cache.example:6379", user, env.name(), "data-bucket", "https://sqs.us-east-1.amazonaws.com/111122223333"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s reads (-want +got):\n%s", name, diff)
			}
		}
	})
}

// MS1: a worker believes the door and admin, and admin believes the workers' dead letters, by the ids that IAM
// gave their roles; and a producer by that of the file.
func TestFunctions_KnowWhoMaySend(t *testing.T) {
	replies := map[string][]queue.Reply{"nightly": {{Alias: "done", Queue: "nightly-replies"}, {Alias: "archive"}}}
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		file, err := os.ReadFile(env.File)
		if err != nil {
			t.Fatal(err)
		}
		want := queue.Senders{Own: []string{roleID(roleOf(t, tpl, env.name("enqueue"))), roleID(roleOf(t, tpl, env.name("admin")))}}
		for _, l := range env.lanes() {
			want.Workers = append(want.Workers, roleID(roleOf(t, tpl, env.name("worker-"+string(l)))))
		}
		for _, p := range env.Config.Producers {
			want.Producers = append(want.Producers, queue.Producer{Name: p.Name, SenderID: p.SenderID, Tenant: p.Tenant, Replies: replies[p.Name], Program: p.Program})
		}
		for _, f := range tpl.of("AWS::Lambda::Function") {
			vars := []string{"LAMBDA_TASK_ROOT=/var/task"}
			for k, v := range at(f.Properties, "Environment", "Variables").(map[string]any) {
				vars = append(vars, k+"="+resolved(v))
			}
			cfg, err := config.Parse("llmq.yaml", file, vars)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, cfg.Senders()); diff != "" {
				t.Errorf("%v (-want +got):\n%s", f.Properties["FunctionName"], diff)
			}
		}
	})
}

// roleID stands for the id that IAM gives a role.
func roleID(logical string) string { return "AROA-" + logical }

// resolved is a value as CloudFormation would fill it in.
func resolved(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case map[string]any:
		switch {
		case v["Fn::Join"] != nil:
			var parts []string
			for _, part := range listOf(at(v, "Fn::Join", 1)) {
				parts = append(parts, resolved(part))
			}
			return strings.Join(parts, at(v, "Fn::Join", 0).(string))
		case v["Ref"] == "AWS::URLSuffix":
			return "amazonaws.com"
		case v["Ref"] == "AWS::Region":
			return "us-east-1"
		case v["Ref"] == "AWS::AccountId":
			return "111122223333"
		case at(v, "Fn::GetAtt", 1) == "Endpoint.Address":
			return "cache.example"
		case at(v, "Fn::GetAtt", 1) == "Endpoint.Port":
			return "6379"
		case at(v, "Fn::GetAtt", 1) == "RoleId":
			return roleID(target(v))
		case strings.HasPrefix(target(v), "StorageData"):
			return "data-bucket"
		case strings.HasPrefix(target(v), "KeysState"):
			return "state-bucket"
		case strings.HasPrefix(target(v), "KeysPepper"):
			return "arn:aws:secretsmanager:us-east-1:111122223333:secret:KeysPepper-AbCdEf"
		}
	}
	return "unresolved " + text(v)
}

func TestStage_PacksTheFileThatWasRead(t *testing.T) {
	dir := t.TempDir()
	if err := stubBinaries(filepath.Join(dir, "dist")); err != nil {
		t.Fatal(err)
	}
	for _, name := range deployed() {
		env, err := Load(environmentFile(name))
		if err != nil {
			t.Fatal(err)
		}
		code, err := env.Stage(filepath.Join(dir, "dist"), dir)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(environmentFile(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []artifact{enqueue, work, admin} {
			got, err := os.ReadFile(filepath.Join(code.path(a), "llmq.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s of %s: %s", a, name, diff)
			}
			info, err := os.Stat(filepath.Join(code.path(a), "bootstrap"))
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode()&0o111 == 0 {
				t.Errorf("bootstrap of %s can't be run: %v", a, info.Mode())
			}
		}
	}
}

func TestStage_SaysHowToBuildWhatIsMissing(t *testing.T) {
	env, err := Load(environmentFile("dev"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.Stage(t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("error %v, want one that names make build", err)
	}
}
