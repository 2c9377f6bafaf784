module github.com/goloop/goloop/examples/embed

go 1.24.0

require go.nhat.io/cpy/v3 v3.12.0
