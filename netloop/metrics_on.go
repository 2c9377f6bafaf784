//go:build !nometrics

package netloop

// countMetrics is false in a library that shows what the metrics cost.
const countMetrics = true
