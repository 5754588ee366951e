module ullage.dev/localcluster

go 1.26.0
