// Package stack is one environment of llmq as a CloudFormation stack. Everything is
// made from the environment's configuration file, the same one that is packed with
// the functions: a queue and a permission exist because the file names a model.
//
// stack.go wires the parts; each other file is one concern.
package stack
