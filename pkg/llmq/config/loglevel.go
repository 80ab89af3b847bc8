package config

import (
	"log/slog"
	"slices"
	"strings"
)

const logLevelVar = "LLMQ_LOG_LEVEL"

// logLevels are its words.
func logLevels() []string { return []string{"debug", "info", "warn", "error"} }

// LogLevel is the least level that a function or program logs, as LLMQ_LOG_LEVEL in env says: info where nothing is said. A
// wrong word is info too, so that the fault that [Load] finds in it is logged.
func LogLevel(env []string) slog.Level {
	switch strings.ToLower(variables(env)[logLevelVar]) {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}

func (o overlay) logLevel(word string) {
	if !slices.Contains(logLevels(), strings.ToLower(word)) {
		o.faultAt(origin{env: logLevelVar}, "", "must be one of %s", strings.Join(logLevels(), ", "))
	}
}
