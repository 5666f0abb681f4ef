-- Documents by their model, so that those of another one are found without a look at all.

create index knowledge_model on agent.knowledge (agent_name, model) where nth = 0 and not deleted;
