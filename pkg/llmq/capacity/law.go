package capacity

import (
	_ "embed"
	"fmt"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

var (
	//go:embed lua/law.lua
	lawText string
	//go:embed lua/law_fields.lua
	lawFieldsText string
	//go:embed lua/law_evidence.lua
	lawEvidenceText string
	//go:embed lua/law_growth.lua
	lawGrowthText string
	//go:embed lua/law_touch.lua
	lawTouchText string
	//go:embed lua/law_walls.lua
	lawWallsText string
	//go:embed lua/law_store.lua
	lawStoreText string
)

// LawText is the law of the learned limit in Lua, as the scripts run it: a chunk, no
// whole script. There is no second implementation: the simulator in local/bench/limiter
// judges this text.
func LawText() string {
	return luascript.Include(lawText, map[string]string{
		"law_fields.lua": lawFieldsText, "law_evidence.lua": lawEvidenceText, "law_growth.lua": lawGrowthText,
		"law_touch.lua": lawTouchText, "law_walls.lua": lawWallsText, "law_store.lua": lawStoreText,
	})
}

// LawConfig is what can be set of the law. [DefaultLaw] is filled in; zero values are
// real ones.
type LawConfig struct {
	// Initial is the number of slots to begin with, from 1; one above MaxSlots is that.
	// Default 20, as the queue whose law this one replaces. LLMQ_AC_INITIAL.
	Initial int
	// MaxSlots caps the slots whatever is learned, from 1: the target's max_concurrency,
	// or else LLMQ_AC_MAX. Default 2000.
	MaxSlots int
	// MaxStarts is the configured quota of starts per minute: the law begins there and
	// never goes above it. 0 is none. At most 10 million.
	MaxStarts int
	// MaxTokens is the same in tokens per minute. 0 is none. At most 1e9.
	MaxTokens int
	// BackgroundShare is the part of the slots that bg and bulk may use, 0 to 1, but
	// while a ceiling is tested. They may always use one. Default 0.8. LLMQ_AC_BG_SHARE.
	BackgroundShare float64
	// RTRateShare is the part of a rate's burst that bg and bulk leave to rt, 0 to 1.
	// Default 0.2. LLMQ_RT_RATE_SHARE.
	RTRateShare float64
	// Window is the time over which throttles are counted and after which a ceiling may
	// grow. Default 1 s. LLMQ_AC_WINDOW_SECS.
	Window time.Duration
	// MinThrottles in a window, and at the same time LossTolerance of its starts, are more
	// than bad luck: a cut. Defaults 2 and 0.05. LLMQ_AC_MIN_THROTTLES,
	// LLMQ_AC_LOSS_TOLERANCE.
	MinThrottles  int
	LossTolerance float64
	// PauseRatio is the part of a window's starts that, refused, closes the target for
	// Pause (doubled up to 5 s while it is refused again; Retry-After counts up to 20 s).
	// Defaults 0.5 and 1 s. LLMQ_AC_PAUSE_RATIO, LLMQ_AC_PAUSE_SECS.
	PauseRatio float64
	Pause      time.Duration
}

// DefaultLaw is the law as it was judged.
func DefaultLaw() LawConfig {
	return LawConfig{
		Initial: 20, MaxSlots: 2000, BackgroundShare: 0.8, RTRateShare: 0.2,
		Window: time.Second, MinThrottles: 2, LossTolerance: 0.05, PauseRatio: 0.5, Pause: time.Second,
	}
}

// Text is the configuration as the scripts take it, in one argument: whole numbers,
// ratios per mille and times in ms, what every call needs first.
func (c LawConfig) Text() string {
	mille := func(ratio float64) int { return int(ratio*1000 + 0.5) }
	return fmt.Sprintf("%d %d %d %d %d %d %d %d %d %d %d", c.MaxSlots, c.MaxStarts, c.MaxTokens,
		mille(c.BackgroundShare), mille(c.RTRateShare), c.Window.Milliseconds(),
		c.Initial, c.MinThrottles, mille(c.LossTolerance), mille(c.PauseRatio), c.Pause.Milliseconds())
}
