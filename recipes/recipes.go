// Package recipes holds the recipes that come with Radial: servers that run
// inside the cluster, one small template each, for development and for trying
// things out. docs/recipes.md describes their parameters and answers.
package recipes

import (
	"embed"
	"fmt"
)

// Recipe is an embedded recipe for one resource type.
type Recipe struct {
	// Type is the resource type that it provisions.
	Type string
	// Name is the name to register it under.
	Name string
	// File is the template's file name; recipes for several types share one.
	File string
	// Content is the template.
	Content []byte
}

//go:embed *.json
var files embed.FS

// Local returns the recipes, in an order that stays.
func Local() []Recipe {
	list := []Recipe{
		{Type: "Applications.Datastores/redisCaches", Name: "default", File: "redis.json"},
		{Type: "Applications.Datastores/mongoDatabases", Name: "default", File: "mongodb.json"},
		{Type: "Applications.Messaging/rabbitMQQueues", Name: "default", File: "rabbitmq.json"},
		{Type: "Applications.Core/extenders", Name: "postgresql", File: "postgresql.json"},
		{Type: "Radius.Data/postgreSqlDatabases", Name: "default", File: "postgresql.json"},
		{Type: "Radius.Data/redisCaches", Name: "default", File: "redis.json"},
		{Type: "Radius.Data/mongoDatabases", Name: "default", File: "mongodb.json"},
	}
	for i, r := range list {
		content, err := files.ReadFile(r.File)
		if err != nil {
			panic(fmt.Sprintf("recipes: %v", err)) // embedded by this very package
		}
		list[i].Content = content
	}
	return list
}
