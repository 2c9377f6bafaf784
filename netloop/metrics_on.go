//go:build !nometrics

package netloop

// countMetrics is false in a library for measuring the cost of the metrics.
const countMetrics = true
