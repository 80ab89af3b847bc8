// Empty is a function that does nothing: what AWS's runtime library itself weighs, and takes to start.
package main

import "github.com/aws/aws-lambda-go/lambda"

func main() { lambda.Start(func() error { return nil }) }
