package config

import "strconv"

// FunctionMemory is how many bytes the Lambda function has whose environment env is, 0 where it is none.
func FunctionMemory(env []string) int64 {
	mb, err := strconv.ParseInt(variables(env)["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"], 10, 32)
	if err != nil || mb < 0 {
		return 0
	}
	return mb << 20
}
