package stack

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCache_IsPublicAndOpensToIAMUsersOnly(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		users := map[string]bool{}
		for id, u := range tpl.of("AWS::ElastiCache::User") {
			name, _ := u.Properties["UserId"].(string)
			users[name] = true
			if u.Properties["UserName"] != name || u.Properties["Passwords"] != nil || u.Properties["NoPasswordRequired"] != nil {
				t.Errorf("%s: %s", id, text(u.Properties))
			}
			if diff := cmp.Diff(map[string]any{"Type": "iam"}, u.Properties["AuthenticationMode"]); diff != "" {
				t.Errorf("%s signs in by %s", id, diff)
			}
		}
		for id, g := range tpl.of("AWS::ElastiCache::UserGroup") {
			for _, u := range listOf(g.Properties["UserIds"]) {
				if !users[u.(string)] {
					t.Errorf("%s has %v, whom nobody made", id, u)
				}
				delete(users, u.(string))
			}
		}
		if len(users) > 0 {
			t.Errorf("users in no group: %v", users)
		}
		caches := tpl.of("AWS::ElastiCache::ServerlessCache")
		if len(caches) != 1 {
			t.Fatalf("%d caches", len(caches))
		}
		for id, c := range caches {
			p := c.Properties
			got := []any{p["Engine"], p["MajorEngineVersion"], p["ConnectionType"], p["ServerlessCacheName"], p["UserGroupId"]}
			if diff := cmp.Diff([]any{"valkey", "9", "public", env.name(), env.name()}, got); diff != "" {
				t.Errorf("%s: %s", id, diff)
			}
			for _, limit := range []any{at(p, "CacheUsageLimits", "DataStorage", "Maximum"), at(p, "CacheUsageLimits", "ECPUPerSecond", "Maximum")} {
				if n, _ := limit.(float64); n <= 0 {
					t.Errorf("%s has no limit: %s", id, text(p["CacheUsageLimits"]))
				}
			}
		}
	})
}

func TestRules_AreWrittenAsValkeyListsThem(t *testing.T) {
	want := "on %R~llmq:dev:live:* ~llmq:dev:cfg:* ~llmq:dev:cap:* ~llmq:dev:fc:* resetchannels -@all +get +hget +hmget +zcount +set +hset +del +pexpire +ping +command +cluster|slots +asking +eval +evalsha +time"
	if got := governorRules("dev").String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRules_GrantNeitherCategoriesNorDanger(t *testing.T) {
	for name, r := range map[string]rules{"door": doorRules("e", false), "door with direct": doorRules("e", true), "worker": workerRules("e"), "admin": adminRules("e"), "governor": governorRules("e"), "program": programRules("e", "acme")} {
		for _, c := range r.commands {
			if strings.HasPrefix(c, "@") || slices.Contains([]string{
				"keys", "scan", "flushall", "flushdb", "config", "script", "acl", "cluster", "client", "debug", "psubscribe", "function",
			}, c) {
				t.Errorf("%s may %s", name, c)
			}
		}
		for _, p := range slices.Concat(r.reads, r.keys, r.channels) {
			if !strings.HasPrefix(p, "llmq:e:") || strings.Count(p, "*") != 1 {
				t.Errorf("%s reaches %s", name, p)
			}
		}
	}
}

var (
	scriptKey     = regexp.MustCompile(`(?m)^-- KEYS\[\d+\] llmq:<env>:([a-z]+):`)
	scriptCommand = regexp.MustCompile(`redis\.call\('([A-Z]+)'`)
)

var scriptInclude = regexp.MustCompile(`(?m)^-- include ([a-z_]+\.lua)$`)

// scriptText is a script with the chunks that it is built from.
func scriptText(t *testing.T, file string) string {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return scriptInclude.ReplaceAllStringFunc(string(source), func(line string) string {
		return scriptText(t, filepath.Join(filepath.Dir(file), scriptInclude.FindStringSubmatch(line)[1]))
	})
}

// A script that touches a key or calls a command that nobody is granted would fail on
// AWS alone, where local servers let everything through.
func TestRules_LetEachScriptRun(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join("..", "..", "..", "pkg", "llmq", "*", "lua", "*.lua"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts found: %v", err)
	}
	for _, file := range scripts {
		source := scriptText(t, file)
		var keys, commands []string
		for _, m := range scriptKey.FindAllStringSubmatch(source, -1) {
			keys = append(keys, class("e", m[1]))
		}
		for _, m := range scriptCommand.FindAllStringSubmatch(source, -1) {
			commands = append(commands, strings.ToLower(m[1]))
		}
		if !strings.HasPrefix(source, "#!lua") { // a chunk that scripts are built from
			if len(keys) > 0 { // what it calls is counted where it is built in
				t.Errorf("%s is no script, and touches %v", file, keys)
			}
			continue
		}
		if filepath.Base(file) == "attend.lua" { // Go programs run it, under users that their owners make
			continue
		}
		if len(keys) == 0 || len(commands) == 0 {
			t.Errorf("%s names no keys or calls no commands", file)
		}
		runs := func(r rules) bool {
			return slices.Contains(r.commands, "evalsha") && containsAll(r.keys, keys) && containsAll(r.commands, commands)
		}
		if slices.Contains(keys, class("e", "live")) { // what operators set is theirs alone to write
			if !runs(adminRules("e")) || runs(workerRules("e")) || runs(doorRules("e", true)) || runs(governorRules("e")) {
				t.Errorf("%s, which touches %v and calls %v, is for operators to run and for nobody else", file, keys, commands)
			}
			continue
		}
		if !runs(doorRules("e", false)) && !runs(workerRules("e")) {
			t.Errorf("nobody may run %s, which touches %v and calls %v", file, keys, commands)
		}
		if !runs(doorRules("e", true)) {
			t.Errorf("a door that runs calls may not run %s, which touches %v and calls %v", file, keys, commands)
		}
		if filepath.Base(file) == "peek.lua" && !runs(adminRules("e")) {
			t.Errorf("operators may not run %s, which touches %v and calls %v", file, keys, commands)
		}
	}
}

func containsAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(have, w) })
}
