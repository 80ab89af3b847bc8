package config

import (
	"log/slog"
	"strings"
	"testing"
)

// E8: LLMQ_LOG_LEVEL; a word that is none is refused, by a log that shows it.
func TestLogLevel_IsAsTheVariableSays(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]slog.Level{
		"": slog.LevelInfo, "debug": slog.LevelDebug, "DEBUG": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError, "trace": slog.LevelInfo,
	} {
		env := []string{"LLMQ_LOG_LEVEL=" + word}
		if got := LogLevel(env); got != want {
			t.Errorf("LogLevel(%q) = %v, want %v", word, got, want)
		}
		_, err := Load("testdata/local.yaml", env)
		refused := err != nil && strings.Contains(err.Error(), "LLMQ_LOG_LEVEL") && strings.Contains(err.Error(), "debug, info, warn, error")
		if refused != (word == "trace") {
			t.Errorf("with %q: %v", word, err)
		}
	}
}
