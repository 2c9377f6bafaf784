//go:build nometrics

package netloop

// countMetrics is false: this library is for measuring the cost of the metrics.
const countMetrics = false
