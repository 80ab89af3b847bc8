package lambda

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// version is the only one a function has here.
const version = "$LATEST"

// maxEnvironment is AWS's limit on a function's own variables: the bytes of all keys and values together.
const maxEnvironment = 4096

// reservedKeys are set by the host for every function and so can't be set by a function's configuration.
func reservedKeys() []string {
	return []string{
		"_HANDLER", "_X_AMZN_TRACE_ID", "AWS_DEFAULT_REGION", "AWS_REGION",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_FUNCTION_VERSION",
		"AWS_LAMBDA_INITIALIZATION_TYPE", "AWS_LAMBDA_LOG_GROUP_NAME", "AWS_LAMBDA_LOG_STREAM_NAME",
		"AWS_EXECUTION_ENV", "AWS_LAMBDA_RUNTIME_API", "AWS_LAMBDA_MAX_CONCURRENCY", "LAMBDA_RUNTIME_DIR", "LAMBDA_TASK_ROOT",
	}
}

// environment returns the whole environment of an instance. It starts from nothing: what the parent has (cloud
// credentials, proxies, GOFLAGS) would make a function work here and fail on AWS, or reach the real AWS from a local run.
// HOME is left out for the same reason, and AWS has none either; it would lead an SDK to ~/.aws.
//
// On AWS it is the same with these differences: the credentials of the role (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
// AWS_SESSION_TOKEN) are there, which here come with the configuration; the address of an X-Ray daemon is
// (AWS_XRAY_DAEMON_ADDRESS, AWS_XRAY_CONTEXT_MISSING), which here would be one outside this machine; TMPDIR is not, since
// each instance has a /tmp of its own. AWS_EXECUTION_ENV and _X_AMZN_TRACE_ID are not set in OS-only runtimes.
func environment(cfg FunctionConfig, region, runtimeAPI, logStream, tmp string) []string {
	env := []string{
		"AWS_DEFAULT_REGION=" + region,
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=" + strconv.Itoa(cfg.MemoryMB),
		"AWS_LAMBDA_FUNCTION_NAME=" + cfg.Name,
		"AWS_LAMBDA_FUNCTION_VERSION=" + version,
		"AWS_LAMBDA_INITIALIZATION_TYPE=on-demand",
		"AWS_LAMBDA_LOG_GROUP_NAME=/aws/lambda/" + cfg.Name,
		"AWS_LAMBDA_LOG_STREAM_NAME=" + logStream,
		"AWS_LAMBDA_RUNTIME_API=" + runtimeAPI,
		"AWS_REGION=" + region,
		"LAMBDA_RUNTIME_DIR=/var/runtime",
		"LAMBDA_TASK_ROOT=" + cfg.Dir,
		"LANG=en_US.UTF-8",
		"LD_LIBRARY_PATH=/lib64:/usr/lib64:/var/runtime:/var/runtime/lib:" + cfg.Dir + ":" + cfg.Dir + "/lib:/opt/lib",
		"PATH=/usr/local/bin:/usr/bin:/bin:/opt/bin",
		"TMPDIR=" + tmp, // the nearest to a /tmp of its own that a plain process gets
		"TZ=:UTC",
		"_HANDLER=" + cfg.Handler,
	}
	return append(env, cfg.Env...) // os/exec lets the last of equal keys win; reserved ones are refused by Create
}

// checkEnv reports the first variable that AWS would refuse.
func checkEnv(env []string) error {
	keyPattern := regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]+$`)
	size := 0
	for _, kv := range env {
		key, value, ok := strings.Cut(kv, "=")
		if !ok || key == "" || strings.ContainsRune(kv, 0) {
			return fmt.Errorf("environment entry %q is not KEY=value", key)
		}
		if !keyPattern.MatchString(key) {
			return fmt.Errorf("environment key %q is not a letter and then one or more letters, digits or _", key)
		}
		for _, reserved := range reservedKeys() {
			if key == reserved {
				return fmt.Errorf("environment key %s is reserved", key)
			}
		}
		size += len(key) + len(value)
	}
	if size > maxEnvironment {
		return fmt.Errorf("environment is %d bytes, the limit is %d", size, maxEnvironment)
	}
	return nil
}
